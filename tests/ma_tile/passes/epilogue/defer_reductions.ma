; A running sum that a loop only scales and adds to finishes once, after its last loop.

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

; CASE: warps exchange their sums and extremes once, after the loop
; RUN: defer-reductions
; ARCH: sm_80
; AGAIN
; COMPLETE:
; TOLERANCE: 1e-5
module sums target sm_80 {
  input X: f32[512]
  input K: i32[512]
  output S: f32[]
  output M: f32[]
  output C: i32[]
  kernel sums grid 1 warps 2 min_blocks 1 {
    layout #x = reg(j:2x1) lane(j:32x2) warp(j:2x64)
    layout #one = reg() lane(*:32) warp(*:2)
    smem r_s: f32[warp: 2, reg: 1, lane: 32] stages 1 swizzle 0 pad 0 @ 0
    smem r_m: f32[warp: 2, reg: 1, lane: 32] stages 1 swizzle 0 pad 0 @ 256
    smem r_c: i32[warp: 2, reg: 1, lane: 32] stages 1 swizzle 0 pad 0 @ 512
    %s0 = const 0.0 : f32 #one
    %m0 = const -inf : f32 #one
    %c0 = const 0 : i32 #one
    %s1, %m1, %c1 = for t in 0..4 carry(%s = %s0, %m = %m0, %c = %c0) {
      %x = ld.global X[t * 128 + j] vec 2 : f32[j: 128] #x
      %k = ld.global K[t * 128 + j] vec 2 : i32[j: 128] #x
      %p = reduce sum %x over j scratch r_s : f32 #one
      %q = reduce max %x over j scratch r_m : f32 #one
      %n = reduce sum %k over j scratch r_c : i32 #one
      %sn = add %s, %p : f32 #one
      %mn = max %m, %q : f32 #one
      %cn = add %c, %n : i32 #one
      barrier
      yield %sn, %mn, %cn
    }
    st.global S[], %s1 vec 1
    st.global M[], %m1 vec 1
    st.global C[], %c1 vec 1
  }
}
; CHECK: for t in 0..4
; CHECK: reduce sum %x over j into j_lane{{.*}} : f32[j_lane{{.*}}: 64]
; CHECK: reduce max %x over j into j_lane
; CHECK: reduce sum %k over j into j_lane
; CHECK: yield
; CHECK-DAG: reduce sum %s1_j_lane{{.*}} scratch r_s : f32
; CHECK-DAG: reduce max %m1_j_lane{{.*}} scratch r_m : f32
; CHECK-DAG: reduce sum %c1_j_lane{{.*}} scratch r_c : i32

; CASE: a scaled extreme stays in the loop
; RUN: defer-reductions
; ARCH: sm_80
; UNCHANGED
module sums target sm_80 {
  input X: f32[64]
  output M: f32[]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg() lane(j:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %f = const 0.5 : f32 #one
    %m0 = const -inf : f32 #one
    %m1 = for t in 0..2 carry(%m = %m0) {
      %x = ld.global X[t * 32 + j] vec 1 : f32[j: 32] #x
      %q = reduce max %x over j : f32 #one
      %h = mul %m, %f : f32 #one
      %n = max %h, %q : f32 #one
      yield %n
    }
    st.global M[], %m1 vec 1
  }
}

; CASE: a sum leaves a loop that another exchange between warps stays in
; RUN: defer-reductions
; ARCH: sm_80
; AGAIN
; COMPLETE:
; TOLERANCE: 1e-5
module sums target sm_80 {
  input X: f32[512]
  output S: f32[]
  kernel sums grid 1 warps 2 min_blocks 1 {
    layout #x = reg(j:2x1) lane(j:32x2) warp(j:2x64)
    layout #one = reg() lane(*:32) warp(*:2)
    smem r_s: f32[warp: 2, reg: 1, lane: 32] stages 1 swizzle 0 pad 0 @ 0
    smem r_m: f32[warp: 2, reg: 1, lane: 32] stages 1 swizzle 0 pad 0 @ 256
    %s0 = const 0.0 : f32 #one
    %s1 = for t in 0..4 carry(%s = %s0) {
      %x = ld.global X[t * 128 + j] vec 2 : f32[j: 128] #x
      %q = reduce max %x over j scratch r_m : f32 #one
      %p = reduce sum %x over j scratch r_s : f32 #one
      %f = mul %s, %q : f32 #one
      %n = add %f, %p : f32 #one
      barrier
      yield %n
    }
    st.global S[], %s1 vec 1
  }
}
; CHECK: for t in 0..4
; CHECK: reduce max %x over j scratch r_m : f32
; CHECK: reduce sum %x over j into j_lane
; CHECK: yield
; CHECK: reduce sum %s1_j_lane{{.*}} scratch r_s : f32

; CASE: a running sum over two axes, which lanes and warps split
; RUN: defer-reductions
; ARCH: sm_80
; AGAIN
; COMPLETE:
; TOLERANCE: 1e-5
module sums target sm_80 {
  input X: f32[64, 16]
  output S: f32[]
  kernel sums grid 1 warps 2 min_blocks 1 {
    layout #x = reg(i:2x1, j:4x1) lane(j:4x4, i:8x2) warp(i:2x16)
    layout #one = reg() lane(*:32) warp(*:2)
    smem r_p: f32[warp: 2, reg: 1, lane: 32] stages 1 swizzle 0 pad 0 @ 0
    %l0 = const 0.0 : f32 #one
    %l1 = for t in 0..2 carry(%l = %l0) {
      %x = ld.global X[t * 32 + i, j] vec 1 : f32[i: 32, j: 16] #x
      %p = reduce sum %x over i, j scratch r_p : f32 #one
      %n = add %l, %p : f32 #one
      barrier
      yield %n
    }
    st.global S[], %l1 vec 1
  }
}
; CHECK: %l1_i_j_lane = for t in 0..2 carry
; CHECK: reduce sum %x over i, j into i_j_lane :
; CHECK: yield
; CHECK: reduce sum %{{.*}}_i_j_lane over i_j_lane scratch r_p : f32
; CHECK-NOT: reduce sum
; CHECK: st.global S[]
; CASE: another combiner, which is not scaled
; RUN: defer-reductions
; ARCH: sm_80
; AGAIN
; COMPLETE:
module sums target sm_80 {
  input X: bool[8, 64]
  output S: bool[8]
  kernel sums grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x4) lane(j:4x1, i:8x1) warp()
    layout #row = reg() lane(*:4, i:8x1) warp()
    %l0 = const false : bool[i: 8] #row
    %l1 = for t in 0..2 chain c carry(%l = %l0) {
      %x = ld.global X[i, t * 16 + j] vec 1 : bool[i: 8, j: 16] #x
      %p = reduce any %x over j : bool[i: 8] #row
      %n = or %l, %p : bool[i: 8] #row
      yield %n
    }
    %l2 = for u in 2..4 chain c carry(%k = %l1) {
      %y = ld.global X[i, u * 16 + j] vec 1 : bool[i: 8, j: 16] #x
      %q = reduce any %y over j : bool[i: 8] #row
      %b = or %k, %q : bool[i: 8] #row
      yield %b
    }
    st.global S[i], %l2 vec 1
  }
}
; CHECK: for t in 0..2 chain c
; CHECK: reduce any %x over j into j_lane :
; CHECK: yield
; CHECK: for u in 2..4 chain c
; CHECK: reduce any %y over j into j_lane :
; CHECK: yield
; CHECK: reduce any %{{.*}}_j_lane over j_lane : bool[i: 8]
; CHECK-NOT: reduce any
; CHECK: st.global S[i]

