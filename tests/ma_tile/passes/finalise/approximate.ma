; f32 functions become the instructions that approximate them; precision strict and other types keep the functions.

; CASE: functions of f32
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %p = exp2 %x : f32[i: 32] #i
    %r = rcp %p : f32[i: 32] #i
    %s = rsqrt %p : f32[i: 32] #i
    %t = tanh %s : f32[i: 32] #i
    %a = add %r, %t : f32[i: 32] #i
    %d = cast %a : f64[i: 32] #i
    %e = exp2 %d : f64[i: 32] #i
    %y = cast %e : f32[i: 32] #i
    st.global Y[i], %y vec 1
  }
}
; CHECK: %p = exp2_approx %x : f32
; CHECK-NEXT: %r = rcp_approx %p : f32
; CHECK-NEXT: %s = rsqrt_approx %p : f32
; CHECK-NEXT: %t = tanh %s : f32
; CHECK: %e = exp2 %d : f64

; CASE: precision strict
; RUN: approximate {"precision": "strict"}
; ARCH: sm_80
; UNCHANGED
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %y = exp2 %x : f32[i: 32] #i
    st.global Y[i], %y vec 1
  }
}
