; A running sum that a loop only scales and adds to finishes once, behind its last loop.

; CASE: a running sum through two loops of a chain
; RUN: defer-reductions
; ARCH: sm_80
; AGAIN
; COMPLETE:
; TOLERANCE: 1e-5
module sums target sm_80 {
  input X: f32[8, 64]
  output S: f32[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const 0.0 : f32[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %m = reduce max %x over j : f32[i: 8] #row
      %p = reduce sum %x over j : f32[i: 8] #row
      %a = mul %l, %m : f32[i: 8] #row
      %n = add %a, %p : f32[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %q = reduce sum %y over j : f32[i: 8] #row
      %b = add %k, %q : f32[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}
; CHECK: for t in 0..2 chain c
; CHECK: reduce max %x over j : f32[i: 8]
; CHECK: reduce sum %x over j into j_lane :
; CHECK: yield
; CHECK: for u in 2..4 chain c
; CHECK: reduce sum %y over j into j_lane :
; CHECK: yield
; CHECK: reduce sum %{{.*}}_j_lane over j_lane : f32[i: 8]
; CHECK-NOT: reduce sum
; CHECK: st.global S[i]

; CASE: a sum that is not linear in the running value
; RUN: defer-reductions
; ARCH: sm_80
; UNCHANGED
module sums target sm_80 {
  input X: f32[8, 64]
  output S: f32[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const 0.0 : f32[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %m = reduce max %x over j : f32[i: 8] #row
      %p = reduce sum %x over j : f32[i: 8] #row
      %a = mul %l, %m : f32[i: 8] #row
      %n0 = add %a, %p : f32[i: 8] #row
      %n = max %n0, %p : f32[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %q = reduce sum %y over j : f32[i: 8] #row
      %b = add %k, %q : f32[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}

; CASE: a running value that is squared
; RUN: defer-reductions
; ARCH: sm_80
; UNCHANGED
module sums target sm_80 {
  input X: f32[8, 64]
  output S: f32[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const 0.0 : f32[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %m = reduce max %x over j : f32[i: 8] #row
      %p = reduce sum %x over j : f32[i: 8] #row
      %a = mul %l, %l : f32[i: 8] #row
      %n = add %a, %p : f32[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %q = reduce sum %y over j : f32[i: 8] #row
      %b = add %k, %q : f32[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}

; CASE: a start that is not zero
; Every lane would hold it.
; RUN: defer-reductions
; ARCH: sm_80
; UNCHANGED
module sums target sm_80 {
  input X: f32[8, 64]
  output S: f32[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const 1.0 : f32[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %m = reduce max %x over j : f32[i: 8] #row
      %p = reduce sum %x over j : f32[i: 8] #row
      %a = mul %l, %m : f32[i: 8] #row
      %n = add %a, %p : f32[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %q = reduce sum %y over j : f32[i: 8] #row
      %b = add %k, %q : f32[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}

; CASE: a sum that is used twice
; RUN: defer-reductions
; ARCH: sm_80
; UNCHANGED
module sums target sm_80 {
  input X: f32[8, 64]
  output S: f32[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const 0.0 : f32[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %m = reduce max %x over j : f32[i: 8] #row
      %p = reduce sum %x over j : f32[i: 8] #row
      %a = mul %l, %m : f32[i: 8] #row
      %s = add %a, %p : f32[i: 8] #row
      %n = add %s, %p : f32[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %q = reduce sum %y over j : f32[i: 8] #row
      %b = add %k, %q : f32[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}

; CASE: a second loop whose sums reduce two axes
; RUN: defer-reductions
; ARCH: sm_80
; UNCHANGED
module sums target sm_80 {
  input X: f32[8, 64]
  output S: f32[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #y = reg(k:4x1) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const 0.0 : f32[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : f32[i: 8, j: 16] #x
      %p = reduce sum %x over j : f32[i: 8] #row
      %n = add %l, %p : f32[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j * 4 + k] vec 1 : f32[i: 8, j: 4, k: 4] #y
      %q = reduce sum %y over j, k : f32[i: 8] #row
      %b = add %k, %q : f32[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}
