; Stores of steps that write parts of sectors go through shared memory.

; CASE: vectors of rows, whose halves of sectors become whole sectors
; RUN: stage-steps
; AGAIN
module t target sm_90a {
  input X: f32[64, 160]
  output Y: f32[64, 160]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_v = reg(v:16x1) lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..10 carry(%h = %zero) {
      %x = ld.global X[block * 32 + i, t * 16 + v] vec 4 : f32[i: 32, v: 16] #i_v
      %s = slice %x at v 3 : f32[i: 32] #i
      %n = add %h, %s : f32[i: 32] #i
      st.global Y[block * 32 + i, t * 16 + v], %x vec 4
      yield %n
    }
  }
}
; CHECK: smem steps_Y : f32[i: 32, v: 16] stages 1
; CHECK: st.shared steps_Y
; CHECK-NEXT: %x_rows = ld.shared steps_Y
; CHECK-NEXT: st.global Y[block * 32 + i, t * 16 + v], %x_rows vec 4

; CASE: several warps would wait for each other
; RUN: stage-steps
; UNCHANGED
module t target sm_90a {
  input X: f32[64, 160]
  output Y: f32[64, 160]
  kernel k grid 1 warps 2 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:2x32)
    layout #i_v = reg(v:16x1) lane(i:32x1) warp(i:2x32)
    %zero = const 0.0 : f32[i: 64] #i
    %last = for t in 0..10 carry(%h = %zero) {
      %x = ld.global X[i, t * 16 + v] vec 4 : f32[i: 64, v: 16] #i_v
      %s = slice %x at v 3 : f32[i: 64] #i
      %n = add %h, %s : f32[i: 64] #i
      st.global Y[i, t * 16 + v], %x vec 4
      yield %n
    }
  }
}

; CASE: lanes along the rows in memory write whole sectors
; RUN: stage-steps
; UNCHANGED
module t target sm_90a {
  input X: f32[64, 16, 32]
  output Y: f32[64, 16, 32]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #v_i = reg(v:16x1) lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..10 carry(%h = %zero) {
      %x = ld.global X[t, v, i] vec 1 : f32[v: 16, i: 32] #v_i
      %s = slice %x at v 3 : f32[i: 32] #i
      %n = add %h, %s : f32[i: 32] #i
      st.global Y[t, v, i], %x vec 1
      yield %n
    }
  }
}
