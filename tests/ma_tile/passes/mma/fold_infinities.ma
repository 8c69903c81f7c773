; Arithmetic on infinite constants in an iteration that was moved in front of its loop.

; CASE: the first maximum is that of the tile, and its factor is 0
; INPUT: rescaled.ma
; EDIT: const -50.0 => const -inf
; EDIT: %dx_0 = => %low_0 = const -3.0e38 : f32 #one\n%mb_0 = max %mn_0, %low_0 : f32[i: 64] #row\n%dx_0 =
; EDIT: sub %m_0, %mn_0 => sub %m_0, %mb_0
; FIRST: pipeline-mma
; RUN: fold-infinities
; RUN: dead-fragments
; COMPLETE:
; AGAIN
; CHECK: %[[R:r_0_.*]] = reduce max
; CHECK-NOT: max %m0
; CHECK-NOT: exp2 %dm_0_first
; CHECK: %[[B:.*]] = max %[[R]], %low
; CHECK: %[[N:.*]] = ne %[[B]], %[[B]] : bool[i: 64] #row
; CHECK: %ls_0_first_number = const 0.0 : f32[i: 64] #row
; CHECK: %ls_0_first = select %[[N]], %[[B]], %ls_0_first_number
; CHECK: %os_0_first = select %[[N]], %[[B]], %os_0_first_number : f32[i: 64, d: 64] #o
; CHECK: for t0 in 1..4 chain c carry(%m_0 = %[[R]],
; CHECK: max %m_0,
; CHECK: %a_0 = exp2 %dm_0

; CASE: a difference that may be of equal infinities stays
; INPUT: rescaled.ma
; EDIT: const -50.0 => const -inf
; FIRST: pipeline-mma
; RUN: fold-infinities
; RUN: dead-fragments
; COMPLETE:
; CHECK: %[[R:r_0_.*]] = reduce max
; CHECK: %[[D:dm_0_.*]] = sub %m0, %[[R]]
; CHECK: %[[N:.*]] = ne %[[D]], %[[D]]
; CHECK: %ls_0_first = select %[[N]], %[[D]], %ls_0_first_number

; CASE: what an infinite difference decides
; INPUT: rescaled.ma
; EDIT: const -50.0 => const -inf
; EDIT: %dx_0 = => %far_0 = sub %mn_0, %m_0 : f32[i: 64] #row\n%five_0 = const 5.0 : f32 #one\n%near_0 = le %far_0, %five_0 : bool[i: 64] #row\n%used_0 = select %near_0, %m_0, %mn_0 : f32[i: 64] #row\n%dx_0 =
; EDIT: sub %x_0, %mn_0 => sub %x_0, %used_0
; EDIT: yield %mn_0 => yield %used_0
; FIRST: pipeline-mma
; RUN: fold-infinities
; RUN: dead-fragments
; COMPLETE:
; CHECK: %[[R:r_0_.*]] = reduce max
; CHECK: %dx_0_first = sub %x_0_first, %[[R]]
; CHECK: carry(%m_0 = %[[R]],
; CHECK: le %far_0, %five_0

; CASE: finite numbers stay
; INPUT: rescaled.ma
; FIRST: pipeline-mma
; RUN: fold-infinities
; UNCHANGED

; CASE: the power of two below -inf is a constant
; INPUT: rescaled.ma
; EDIT: const -50.0 => const -inf
; EDIT: %dx_0 = => %unit_0 = binade %m_0 : f32[i: 64] #row\n%mu_0 = add %mn_0, %unit_0 : f32[i: 64] #row\n%dx_0 =
; EDIT: sub %x_0, %mn_0 => sub %x_0, %mu_0
; FIRST: pipeline-mma
; RUN: fold-infinities
; RUN: dead-fragments
; COMPLETE:
; CHECK: %unit_0_first = const 7.888609052210118e-31 : f32[i: 64] #row
; CHECK-NOT: binade %m0
; CHECK: carry(
; CHECK: binade %m_0

; CASE: the larger one of a number and -inf is the number
; RUN: fold-infinities
; AGAIN
; COMPLETE:
module m target sm_90a {
  input X: f32[64]
  output Y: f32[64]
  kernel m grid 1 warps 2 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:2x32)
    %m = const -inf : f32[i: 64] #i
    %x = ld.global X[i] vec 1 : f32[i: 64] #i
    %y = max %x, %m : f32[i: 64] #i
    st.global Y[i], %y vec 1
  }
}
; CHECK: st.global Y[i], %x

; CASE: a power of two alone
; RUN: fold-infinities
; AGAIN
; COMPLETE:
module m target sm_90a {
  input X: f32[64]
  output Y: f32[64]
  kernel m grid 1 warps 2 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:2x32)
    %m = const -inf : f32[i: 64] #i
    %x = ld.global X[i] vec 1 : f32[i: 64] #i
    %y = binade %m : f32[i: 64] #i
    st.global Y[i], %y vec 1
  }
}
; CHECK: %y = const 7.888609052210118e-31
