; Loads of later steps are issued while the present step is computed.

; CASE: the elements of two later steps are in registers
; RUN: prefetch-steps {"steps": 2}
; COMPLETE:
module t target sm_90a {
  input X: f32[9, 64]
  input A: f32[9]
  output Y: f32[9, 64]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..9 carry(%h = %zero) {
      %a = ld.global A[t] vec 1 : f32 #one
      %x = ld.global X[t, block * 32 + i] vec 1 : f32[i: 32] #i
      %n = fma %a, %h, %x : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n vec 1
      yield %n
    }
  }
}
; CHECK: %a_first = ld.global A[0]
; CHECK: %a_first2 = ld.global A[1]
; CHECK: %x_first2 = ld.global X[1, block * 32 + i]
; CHECK: for t in 0..7 unroll 2 carry(%h = %zero, %a_ahead = %a_first, %a_ahead2 = %a_first2
; CHECK: %x_next = ld.global X[t + 2, block * 32 + i]
; CHECK: fma %a_ahead, %h, %x_ahead
; CHECK: yield %n, %a_ahead2, %a_next, %x_ahead2, %x_next
; CHECK: for t2 in 7..9 unroll 2 carry
; CHECK-NOT: ld.global
; CHECK: yield

; CASE: by the rule, as many steps as the loop allows
; RUN: prefetch-steps
; COMPLETE:
module t target sm_90a {
  input X: f32[64, 64]
  output Y: f32[64, 64]
  kernel k grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..64 carry(%h = %zero) {
      %x = ld.global X[63 - t, block * 32 + i] where t < 60 vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t, block * 32 + i], %n vec 1
      yield %n
    }
  }
}
; CHECK: for t in 0..32 unroll 32 carry
; CHECK: ld.global X[-t + 31, block * 32 + i] where t < 28
; CHECK: for t2 in 32..64 unroll 32 carry

; CASE: a number of steps that is known at launch: the loads in front have masks
; RUN: prefetch-steps {"steps": 2}
; COMPLETE:
module t target sm_90a {
  input X: f32[T, 32]
  output Y: f32[T, 32]
  param T: i32 = 5 <= 64
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..T carry(%h = %zero) {
      %x = ld.global X[t, i] vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t, i], %n vec 1
      yield %n
    }
  }
}
; CHECK: ld.global X[1, i] where T >= 2
; CHECK: for t in 0..max(T - 2, 0) unroll 2 carry
; CHECK: for t2 in max(T - 2, 0)..T unroll 2 carry

; CASE: a load of what the kernel stores stays
; RUN: prefetch-steps {"steps": 1}
; UNCHANGED
module t target sm_90a {
  output Y: f32[9, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %zero = const 0.0 : f32[i: 32] #i
    st.global Y[0, i], %zero vec 1
    %last = for t in 0..8 carry(%h = %zero) {
      %x = ld.global Y[t, i] vec 1 : f32[i: 32] #i
      %n = add %h, %x : f32[i: 32] #i
      st.global Y[t + 1, i], %n vec 1
      yield %n
    }
  }
}
