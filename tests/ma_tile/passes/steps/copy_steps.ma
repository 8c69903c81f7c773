; A warp copies the rows of later steps to shared memory.

; CASE: stages of four steps, and the steps that are left
; RUN: copy-steps {"steps": 4}
; COMPLETE: allocate-shared, synchronize
module t target sm_90a {
  input X: f32[43, 64]
  input A: f32[43, 64]
  output Y: f32[43, 64]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..43 carry(%h = %zero) {
      %a = ld.global A[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %x = ld.global X[42 - t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n = fma %a, %h, %x : f32[i: 32] #i
      %first = index t >= 1 : bool #one
      %y = select %first, %n, %x : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %y vec 1
      yield %y
    }
  }
}
; CHECK: smem steps_A : f32[v: 4, i: 32] stages 8
; CHECK: cp.async steps_A[0], A[v, block * 32 + i] vec 4 threads #i_copies
; CHECK: cp.async steps_X[6], X[-v + 18, block * 32 + i] vec 4
; CHECK: for t in 0..10 carry(%h = %zero)
; CHECK: if t < 3 {
; CHECK: cp.async steps_X[(t + 7) % 8], X[t * -4 - v + 14, block * 32 + i] vec 4
; CHECK: cp.commit
; CHECK: %a_steps = ld.shared steps_A[t % 8]
; CHECK: slice %a_steps at v 0
; CHECK: index t >= 1
; CHECK: slice %x_steps at v 3
; CHECK: index true
; CHECK: for t2 in 40..43 carry
; CHECK: ld.global A[t2, block * 32 + i]

; CASE: rows of bytes that are no multiple of 16 are copied in shorter vectors, and those outside are left out
; RUN: copy-steps {"steps": 4}
; COMPLETE: allocate-shared, synchronize
module t target sm_90a {
  input X: f16[16, 46]
  output Y: f32[16, 46]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..16 carry(%h = %zero) {
      %x = ld.global X[t, block * 32 + i] where block * 32 + i < 46 vec 1 : f16[i: 32] #i
      %w = cast %x : f32[i: 32] #i
      %n = add %h, %w : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n where block * 32 + i < 46 vec 1
      yield %n
    }
  }
}
; CHECK: cp.async steps_X[0], X[v, block * 32 + i] where block * 32 + i < 46 vec 2

; CASE: few steps
; RUN: copy-steps {"steps": 4}
; UNCHANGED
module t target sm_90a {
  input X: f32[15, 32]
  output Y: f32[15, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..15 carry(%h = %zero) {
      %x = ld.global X[t, i] vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t, i], %n vec 1
      yield %n
    }
  }
}

; CASE: lanes that have rows of their own, and rows whose elements begin anywhere
; RUN: copy-steps {"steps": 4}
; UNCHANGED
module t target sm_90a {
  input X: f16[32, 64]
  input Z: f16[64, 33]
  output Y: f32[64, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %x = ld.global X[i, t] vec 1 : f16[i: 32] #i
      %z = ld.global Z[t, i] vec 1 : f16[i: 32] #i
      %w = cast %x : f32[i: 32] #i
      %u = cast %z : f32[i: 32] #i
      %m = add %w, %u : f32[i: 32] #i
      %n = add %h, %m : f32[i: 32] #i
      st.global Y[t, i], %n vec 1
      yield %n
    }
  }
}

; CASE: a multiprocessor with many warps has enough loads outstanding
; RUN: copy-steps
; UNCHANGED
module t target sm_90a {
  input X: f32[64, 65536]
  output Y: f32[64, 65536]
  kernel k grid 2048 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %x = ld.global X[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n vec 1
      yield %n
    }
  }
}

; CASE: one warp of a multiprocessor has eight stages outstanding
; RUN: copy-steps
module t target sm_90a {
  input A: f32[64, 4224]
  input B: f32[64, 4224]
  input C: f32[64, 4224]
  input D: f32[64, 4224]
  output Y: f32[64, 4224]
  kernel k grid 132 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %a = ld.global A[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %b = ld.global B[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %c = ld.global C[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %d = ld.global D[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n0 = add %h, %a : f32[i: 32] #i
      %n1 = add %n0, %b : f32[i: 32] #i
      %n2 = add %n1, %c : f32[i: 32] #i
      %n3 = add %n2, %d : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n3 vec 1
      yield %n3
    }
  }
}
; CHECK: smem steps_A : f32[v: 16, i: 32] stages 8

; CASE: two warps of a multiprocessor have half of the outstanding bytes each
; RUN: copy-steps
module t target sm_90a {
  input A: f32[64, 4256]
  input B: f32[64, 4256]
  input C: f32[64, 4256]
  input D: f32[64, 4256]
  output Y: f32[64, 4256]
  kernel k grid 133 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %a = ld.global A[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %b = ld.global B[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %c = ld.global C[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %d = ld.global D[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n0 = add %h, %a : f32[i: 32] #i
      %n1 = add %n0, %b : f32[i: 32] #i
      %n2 = add %n1, %c : f32[i: 32] #i
      %n3 = add %n2, %d : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n3 vec 1
      yield %n3
    }
  }
}
; CHECK: smem steps_A : f32[v: 16, i: 32] stages 4

; CASE: four warps of a multiprocessor still copy
; RUN: copy-steps
module t target sm_90a {
  input A: f32[64, 16896]
  input B: f32[64, 16896]
  output Y: f32[64, 16896]
  kernel k grid 528 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %a = ld.global A[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %b = ld.global B[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n0 = add %h, %a : f32[i: 32] #i
      %n1 = add %n0, %b : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n1 vec 1
      yield %n1
    }
  }
}
; CHECK: smem steps_A : f32[v: 16, i: 32] stages 4

; CASE: five warps of a multiprocessor have enough loads outstanding
; RUN: copy-steps
; UNCHANGED
module t target sm_90a {
  input A: f32[64, 16928]
  input B: f32[64, 16928]
  output Y: f32[64, 16928]
  kernel k grid 529 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %a = ld.global A[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %b = ld.global B[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n0 = add %h, %a : f32[i: 32] #i
      %n1 = add %n0, %b : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n1 vec 1
      yield %n1
    }
  }
}

; CASE: rows of one element
; RUN: copy-steps {"steps": 4}
; UNCHANGED
module t target sm_90a {
  input X: f32[43, 64]
  output Y: f32[43, 64]
  kernel k grid 64 warps 1 min_blocks 1 {
    layout #i = reg() lane(*:32) warp()
    %zero = const 0.0 : f32[i: 1] #i
    %last = for t in 0..43 carry(%h = %zero) {
      %x = ld.global X[t, block + i] vec 1 : f32[i: 1] #i
      %n = add %h, %x : f32[i: 1] #i
      st.global Y[t, block + i], %n vec 1
      yield %n
    }
  }
}
