; A thread loads and stores the elements of several steps with one instruction.

; CASE: a load of this step and of the one before, and a store: one vector, and that of the iteration before
; RUN: vector-steps {"steps": 4}
; COMPLETE:
module t target sm_90a {
  input X: f32[64, 24]
  output Y: f32[64, 24]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..22 carry(%h = %zero) {
      %x = ld.global X[block * 32 + i, t] vec 1 : f32[i: 32] #i
      %w = ld.global X[block * 32 + i, t - 1] where t >= 1 vec 1 : f32[i: 32] #i
      %a = mul %h, %x : f32[i: 32] #i
      %n = sub %a, %w : f32[i: 32] #i
      st.global Y[block * 32 + i, t], %n vec 1
      yield %n
    }
  }
}
; CHECK: layout #i_v = reg(v:4x1) lane(i:32x1) warp()
; CHECK: %w_steps2_before = ld.global X[block * 32 + i, v - 4] where false vec 4
; CHECK: for t in 0..5 carry(%h = %zero, %w_steps2 = %w_steps2_before)
; CHECK: %x_steps = ld.global X[block * 32 + i, t * 4 + v] vec 4 : f32[i: 32, v: 4] #i_v
; CHECK-NOT: ld.global
; CHECK: %x_s0 = slice %x_steps at v 0
; CHECK: %w_s0_read = slice %w_steps2 at v 3
; CHECK: %w_s0_inside = index t >= 1
; CHECK: %w_s1 = slice %x_steps at v 0
; CHECK: %n_steps = stack %n_s0, %n_s1, %n_s2, %n_s3 over v
; CHECK: st.global Y[block * 32 + i, t * 4 + v], %n_steps vec 4
; CHECK: yield %n_s3, %x_steps
; CHECK: for t2 in 20..22 carry
; CHECK: st.global Y[block * 32 + i, t2], %n_left vec 1

; CASE: steps from the last one to the first one, in 16 bits
; RUN: vector-steps
; COMPLETE:
module t target sm_90a {
  input X: f16[32, 64]
  output Y: f16[32, 64]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %x = ld.global X[i, 63 - t] vec 1 : f16[i: 32] #i
      %w = cast %x : f32[i: 32] #i
      %n = max %h, %w : f32[i: 32] #i
      st.global Y[i, 63 - t], %n vec 1
      yield %n
    }
  }
}
; CHECK: for t in 0..4 carry
; CHECK: ld.global X[i, v - t * 16 + 48] vec 8 : f16[i: 32, v: 16]
; CHECK: slice %x_steps at v 15
; CHECK: stack %n_s15, %n_s14
; CHECK: st.global Y[i, v - t * 16 + 48], %n_steps vec 8

; CASE: rows that begin at odd places
; RUN: vector-steps
; COMPLETE: allocate-shared, synchronize
module t target sm_90a {
  input X: f32[32, 65]
  output Y: f32[32, 65]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..65 carry(%h = %zero) {
      %x = ld.global X[i, t] vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[i, t], %n vec 1
      yield %n
    }
  }
}
; CHECK: for t in 0..4 carry
; CHECK: %x_steps_rows = ld.global X[i, t * 16 + v] vec 1 : f32[i: 32, v: 16] #i_v_rows
; CHECK: st.shared steps_X[0], %x_steps_rows vec 1
; CHECK: %x_steps = ld.shared steps_X[0] vec 4 : f32[i: 32, v: 16] #i_v
; CHECK: st.global Y[i, t * 16 + v], %n_steps vec 1
; CHECK: in 64..65

; CASE: the same in two warps, whose stores are not staged
; RUN: vector-steps
; UNCHANGED
; COMPLETE:
module t target sm_90a {
  input X: f32[64, 65]
  output Y: f32[64, 65]
  kernel k grid 1 warps 2 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:2x32)
    %zero = const 0.0 : f32[i: 64] #i
    %last = for t in 0..65 carry(%h = %zero) {
      %x = ld.global X[i, t] vec 1 : f32[i: 64] #i
      %n = add %h, %x : f32[i: 64] #i
      st.global Y[i, t], %n vec 1
      yield %n
    }
  }
}

; CASE: functions in f64, whose code would take too long to compile
; RUN: vector-steps
; CONSTANT: ma_tile.passes.steps.vector_steps:MOST 6224
; COMPLETE:
module t target sm_90a {
  input X: f64[32, 64]
  output Y: f64[32, 64]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f64[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %x = ld.global X[i, t] vec 1 : f64[i: 32] #i
      %a = tanh %x : f64[i: 32] #i
      %b = sin %a : f64[i: 32] #i
      %c = erf %b : f64[i: 32] #i
      %d = exp %c : f64[i: 32] #i
      %n = max %h, %d : f64[i: 32] #i
      st.global Y[i, t], %n vec 1
      yield %n
    }
  }
}
; CHECK: for t in 0..32 carry
; CHECK: ld.global X[i, t * 2 + v] vec 2 : f64[i: 32, v: 2]

; CASE: flags of a byte beside numbers: as many steps as a row of the numbers has, where there are few
; RUN: vector-steps
; COMPLETE:
module t target sm_90a {
  input X: f32[32, 64]
  input F: u8[32, 64]
  output Y: f32[32, 64]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %x = ld.global X[i, t] vec 1 : f32[i: 32] #i
      %f = ld.global F[i, t] vec 1 : u8[i: 32] #i
      %w = cast %f : f32[i: 32] #i
      %a = mul %h, %w : f32[i: 32] #i
      %n = add %a, %x : f32[i: 32] #i
      st.global Y[i, t], %n vec 1
      yield %n
    }
  }
}
; CHECK: for t in 0..4 carry
; CHECK: ld.global X[i, t * 16 + v] vec 4
; CHECK: ld.global F[i, t * 16 + v] vec 16

; CASE: conditions of this step and of the one before, which is none before the first step
; RUN: vector-steps {"steps": 4}
module t target sm_90a {
  input X: bool[64, 24]
  output Y: bool[64, 24]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %no = const false : bool[i: 32] #i
    %last = for t in 0..24 carry(%h = %no) {
      %x = ld.global X[block * 32 + i, t] vec 1 : bool[i: 32] #i
      %w = ld.global X[block * 32 + i, t - 1] where t >= 1 vec 1 : bool[i: 32] #i
      %a = and %h, %w : bool[i: 32] #i
      %n = or %a, %x : bool[i: 32] #i
      st.global Y[block * 32 + i, t], %n vec 1
      yield %n
    }
  }
}
; CHECK: %x_steps = ld.global X[block * 32 + i, t * 4 + v] vec 4 : bool[i: 32, v: 4] #i_v
; CHECK: %w_s0_zero = const false
; CHECK: st.global Y[block * 32 + i, t * 4 + v], %n_steps vec 4

; CASE: elements of earlier steps, in rows of whole vectors
; RUN: vector-steps {"steps": 8}
; COMPLETE:
module t target sm_90a {
  input X: f32[32, 32]
  output Y: f32[36, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..36 carry(%h = %zero) {
      %x = ld.global X[i, t - 4] where t >= 4 vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t, i], %n vec 1
      yield %n
    }
  }
}
; CHECK: ld.global X[i, t * 8 + v] vec 4

; CASE: vectors are so short that the last one of a row ends with it
; RUN: vector-steps {"steps": 8}
; COMPLETE:
module t target sm_90a {
  input X: f32[32, 28]
  output Y: f32[32, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..32 carry(%h = %zero) {
      %x = ld.global X[i, t - 4] where t >= 4 vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t, i], %n vec 1
      yield %n
    }
  }
}
; CHECK: ld.global X[i, t * 4 + v - 4] where t >= 1 vec 4

; CASE: integers of the step before, and a condition that holds for all lanes
; RUN: vector-steps {"steps": 4}
; COMPLETE:
module t target sm_90a {
  input X: i32[64, 24]
  output Y: i32[64, 24]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0 : i32[i: 32] #i
    %last = for t in 0..24 carry(%h = %zero) {
      %x = ld.global X[block * 32 + i, t] where i - t < 32 vec 1 : i32[i: 32] #i
      %w = ld.global X[block * 32 + i, t - 1] where t >= 1 vec 1 : i32[i: 32] #i
      %a = add %h, %x : i32[i: 32] #i
      %n = sub %a, %w : i32[i: 32] #i
      st.global Y[block * 32 + i, t], %n vec 1
      yield %n
    }
  }
}
; CHECK: %x_steps = ld.global X[block * 32 + i, t * 4 + v] vec 4
; CHECK-NEXT: %x_s0 = slice %x_steps at v 0
; CHECK-NEXT: %w_s0_read = slice
; CHECK-NEXT: %w_s0_zero = const 0 : i32
