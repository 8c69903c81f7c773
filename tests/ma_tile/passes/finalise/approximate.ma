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

; CASE: angles, lengths, and powers with a constant exponent of at most 1
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %half = const -0.75 : f32 #one
    %two = const 1.5 : f32 #one
    %m = abs %x : f32[i: 32] #i
    %p = pow %m, %half : f32[i: 32] #i
    %q = pow %m, %two : f32[i: 32] #i
    %r = pow %m, %m : f32[i: 32] #i
    %a = atan2 %p, %q : f32[i: 32] #i
    %h = hypot %a, %r : f32[i: 32] #i
    st.global Y[i], %h vec 1
  }
}
; CHECK: %p = pow_approx %m, %half : f32
; CHECK-NEXT: %q = pow %m, %two : f32
; CHECK-NEXT: %r = pow %m, %m : f32
; CHECK-NEXT: %a = atan2_approx %p, %q : f32
; CHECK-NEXT: %h = hypot_approx %a, %r : f32

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

; CASE: quotients that are reduced, stored, and rounded
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %half = const 0.5 : f32 #one
    %m = add %x, %x : f32[i: 32] #i
    %p = div %x, %m : f32[i: 32] #i
    %q = div %m, %x : f32[i: 32] #i
    %r = div %x, %p : f32[i: 32] #i
    %s = round %r : f32[i: 32] #i
    %t = add %q, %s : f32[i: 32] #i
    %z = reduce sum %t over i : f32 #one
    st.global Y[i], %p vec 1
    st.global Z[], %z vec 1
  }
}
; CHECK: %p = div %x, %m : f32
; CHECK-NEXT: %q = div_approx %m, %x : f32
; CHECK-NEXT: %r = div %x, %p : f32

; CASE: a root of which a sum is left, and one that is stored
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %p = sqrt %x : f32[i: 32] #i
    %q = sqrt %p : f32[i: 32] #i
    %z = reduce sum %q over i : f32 #one
    st.global Y[i], %p vec 1
    st.global Z[], %z vec 1
  }
}
; CHECK: %p = sqrt %x : f32
; CHECK-NEXT: %q = sqrt_approx %p : f32

; CASE: quotients in a loop, of which the largest is found elsewhere
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  output Y: f32[]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %w = const 0.0 : f32 #one
    %y = for a in 0..2 carry(%c = %w) {
      %q = div %x, %x : f32[i: 32] #i
      %m = reduce max %q over i : f32 #one
      %n = max %c, %m : f32 #one
      yield %n
    }
    st.global Y[], %y vec 1
  }
  kernel l grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %one = const 1 : i32 #one
    %none = const 0 : i32 #one
    %y = ld.global Y[] vec 1 : f32 #one
    %q = div %x, %x : f32[i: 32] #i
    %e = eq %q, %y : bool[i: 32] #i
    %s = select %e, %one, %none : i32[i: 32] #i
    %f = cast %s : f32[i: 32] #i
    %z = reduce sum %f over i : f32 #one
    st.global Z[], %z vec 1
  }
}
; CHECK-COUNT-2: %q = div_approx %x, %x : f32

; CASE: quotients that are compared, and one of them is stored
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; UNCHANGED
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %q = div %x, %x : f32[i: 32] #i
    %z = reduce max %q over i : f32 #one
    st.global Z[], %z vec 1
  }
  kernel l grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %y = ld.global Z[] vec 1 : f32 #one
    %q = div %x, %x : f32[i: 32] #i
    %e = eq %q, %y : bool[i: 32] #i
    %s = select %e, %x, %q : f32[i: 32] #i
    st.global Y[i], %s vec 1
  }
}

; CASE: the scale of what a loop carries
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; UNCHANGED
module t target sm_80 {
  input X: f32[32]
  output Y: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %y = for a in 0..2 carry(%c = %x) {
      %q = div %c, %x : f32[i: 32] #i
      %n = mul %c, %q : f32[i: 32] #i
      yield %n
    }
    %z = reduce max %y over i : f32 #one
    st.global Y[], %z vec 1
  }
}

; CASE: logarithms that are stored, and that decide a step
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; UNCHANGED
module t target sm_80 {
  input X: f32[32]
  output H: f16[32]
  output Y: f32[32]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %a = log1p %x : f32[i: 32] #i
    %b = log2 %x : f32[i: 32] #i
    %c = log1p %b : f32[i: 32] #i
    %d = log2 %a : f32[i: 32] #i
    %f = floor %d : f32[i: 32] #i
    %h = narrow %a : f16[i: 32] #i
    %s = add %b, %f : f32[i: 32] #i
    %z = reduce sum %s over i : f32 #one
    st.global H[i], %h vec 1
    st.global Y[i], %c vec 1
    st.global Z[], %z vec 1
  }
}
; CASE: logarithms of which only sums and 16-bit numbers are left
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  output H: f16[32]
  output G: bf16[32]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %a = log1p %x : f32[i: 32] #i
    %b = log2 %x : f32[i: 32] #i
    %c = log2 %a : f32[i: 32] #i
    %h = narrow %a : f16[i: 32] #i
    %z = reduce sum %b over i : f32 #one
    st.global H[i], %h vec 1
    st.global G[i], %c vec 1
    st.global Z[], %z vec 1
  }
}
; CHECK: %a = log1p_approx %x : f32
; CHECK-NEXT: %b = log2_approx %x : f32
; CHECK-NEXT: %c = log2_approx %a : f32

; CASE: a quotient that an operation reads which rounds, and one whose multiple by a power of two is stored
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; TOLERANCE: 1e-6
; AGAIN
module t target sm_80 {
  input X: f32[32]
  input W: f32[32]
  output Y: f32[32]
  output Z: f32[32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %w = ld.global W[i] vec 1 : f32[i: 32] #i
    %two = const 2.0 : f32 #one
    %p = div %x, %w : f32[i: 32] #i
    %q = div %w, %x : f32[i: 32] #i
    %y = add %p, %w : f32[i: 32] #i
    %z = mul %q, %two : f32[i: 32] #i
    st.global Y[i], %y vec 1
    st.global Z[i], %z vec 1
  }
}
; CHECK: %p = div_approx %x, %w : f32
; CHECK-NEXT: %q = div %w, %x : f32

; CASE: a root that is stored beside a sum, in front of a kernel without functions
; RUN: approximate
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[32]
  temp P: f32[32]
  output Y: f32[32]
  output Z: f32[]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %p = sqrt %x : f32[i: 32] #i
    %q = sqrt %p : f32[i: 32] #i
    %z = reduce sum %q over i : f32 #one
    st.global P[i], %p vec 1
    st.global Z[], %z vec 1
  }
  kernel l grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %p = ld.global P[i] vec 1 : f32[i: 32] #i
    %y = add %p, %p : f32[i: 32] #i
    st.global Y[i], %y vec 1
  }
}
; CHECK: %p = sqrt %x : f32
; CHECK-NEXT: %q = sqrt_approx %p : f32

; CASE: a stored quotient of sums, whose error is its own alone
; RUN: approximate
; ARCH: sm_80
; UNCHANGED
module t target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #i
    %s = add %x, %x : f32[i: 32] #i
    %q = div %x, %s : f32[i: 32] #i
    st.global Y[i], %q vec 1
  }
}
