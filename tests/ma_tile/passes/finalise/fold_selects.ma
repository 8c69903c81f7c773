; A choice that the range of a loop decides is what it chooses.

; CASE: the first piece of a loop over two ranges chooses, and the second one begins with the second range
; RUN: fold-selects
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[64, 32]
  output Y: f32[32]
  param w: i32 <= 8
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #d = reg() lane(d:32x1) warp()
    %zero = const 0.0 : f32[d: 32] #d
    %y = for j in max(w, 2) - 1..min(max(w, 2) + 3, 9) chain c carry(%a = %zero) {
      %x = ld.global X[select(j < max(w, 2), j + 1 - max(w, 2), j), d] vec 1 : f32[d: 32] #d
      %b = add %a, %x : f32[d: 32] #d
      yield %b
    }
    %z = for k in max(min(max(w, 2) + 3, max(w, 2) + 1), 0)..16 chain c carry(%c = %y) {
      %v = ld.global X[select(k < max(w, 2), k + 1 - max(w, 2), k), d] vec 1 : f32[d: 32] #d
      %u = ld.global X[select(k < w + 9, k, k + 1), d] vec 1 : f32[d: 32] #d
      %s = add %v, %u : f32[d: 32] #d
      %e = add %c, %s : f32[d: 32] #d
      yield %e
    }
    st.global Y[d], %z vec 1
  }
}
; CHECK: ld.global X[select(j < max(w, 2)
; CHECK: ld.global X[k, d]
; CHECK: ld.global X[select(k < w + 9

; CASE: a loop that begins where the range does, and one that a number of the caller may keep below it
; RUN: fold-selects
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[64, 32]
  output Y: f32[32]
  param w: i32 <= 8
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #d = reg() lane(d:32x1) warp()
    %zero = const 0.0 : f32[d: 32] #d
    %y = for j in w + 1..w + 3 chain c carry(%a = %zero) {
      %x = ld.global X[max(select(j < w + 1, 0, j), 0), d] vec 1 : f32[d: 32] #d
      %b = add %a, %x : f32[d: 32] #d
      yield %b
    }
    %z = for k in 5..12 chain c carry(%c = %y) {
      %v = ld.global X[select(k < w, k + 1, k), d] vec 1 : f32[d: 32] #d
      %e = add %c, %v : f32[d: 32] #d
      yield %e
    }
    st.global Y[d], %z vec 1
  }
}
; CHECK: ld.global X[max(j, 0), d]
; CHECK: ld.global X[select(k < w, k + 1, k), d]
