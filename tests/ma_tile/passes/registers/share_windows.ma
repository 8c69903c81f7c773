; A thread loads the elements of its overlapping windows once.

; CASE: along contiguous elements and along rows, with vectors that begin before the windows and end after them
; RUN: share-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[12, 64]
  output Y: f32[8, 64]
  kernel t grid 2 warps 1 min_blocks 1 {
    layout #q_p_s_r = reg(q:4x1, p:4x1, s:3x1, r:3x1) lane(q:16x4, *:2) warp()
    layout #q_p = reg(q:4x1, p:4x1) lane(q:16x4, *:2) warp()
    %x = ld.global X[block * 4 + p + r, q + s - 1] where q + s >= 1 and q + s < 65 vec 1 : f32[p: 4, q: 64, r: 3, s: 3] #q_p_s_r
    %y = reduce sum %x over r, s : f32[p: 4, q: 64] #q_p
    st.global Y[block * 4 + p, q], %y vec 4
  }
}
; CHECK: %x_once_once = ld.global X[block * 4 + u, q * 4 + u2 - 2] where {{.*}} vec 2 : f32[u2: 8, q: 16, u: 6]
; CHECK-NEXT: %x_once = window %x_once_once over u2 into q s by 1 1 from 1 :
; CHECK-NEXT: %x = window %x_once over u into r p by 1 1 :

; CASE: positions between those of lanes, two elements apart, and vectors along another axis
; RUN: share-windows
; COMPLETE:
module t target sm_80 {
  input X: f16[32, 16]
  output Y: f32[8, 16]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #c_q_s = reg(c:8x1, q:2x1, s:3x1) lane(c:2x8, q:4x2, *:4) warp()
    layout #c_q = reg(c:8x1, q:2x1) lane(c:2x8, q:4x2, *:4) warp()
    %x = ld.global X[q * 2 + s, c] vec 8 : f16[q: 8, s: 3, c: 16] #c_q_s
    %f = cast %x : f32[q: 8, s: 3, c: 16] #c_q_s
    %m = reduce max %f over s : f32[q: 8, c: 16] #c_q
    st.global Y[q, c], %m vec 4
  }
}
; CHECK: %x_once = ld.global X[q * 4 + u, c] vec 8 : f16[
; CHECK-NEXT: %x = window %x_once over u into {{q s|s q}} by 2 1 : f16[q: 8, s: 3, c: 16] #c_q_s

; CASE: windows that do not overlap, and a mask of positions alone
; RUN: share-windows
; UNCHANGED
module t target sm_80 {
  input X: f32[128]
  output Y: f32[32]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #q_s = reg(q:2x1, s:2x1) lane(q:16x2, *:2) warp()
    layout #q = reg(q:2x1) lane(q:16x2, *:2) warp()
    %x = ld.global X[q * 2 + s] vec 1 : f32[q: 32, s: 2] #q_s
    %y = reduce sum %x over s : f32[q: 32] #q
    st.global Y[q], %y vec 2
    %v = ld.global X[q + s] where q < 30 vec 1 : f32[q: 32, s: 2] #q_s
    %z = reduce sum %v over s : f32[q: 32] #q
    st.global Z[q], %z vec 2
  }
}

; CASE: terms that move against the positions, with a condition that has both on either side
; RUN: share-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[80]
  output Y: f32[3, 64]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #q_s = reg(q:4x1, s:3x1) lane(q:16x4, *:2) warp()
    %x = ld.global X[q - s] where s <= q vec 1 : f32[s: 3, q: 64] #q_s
    st.global Y[s, q], %x vec 4
  }
}
; CHECK: %x_once = ld.global X[q * 4 + u - 4] where {{.*}} vec 4 : f32[u: 8, q: 16]
; CHECK-NEXT: %x = window %x_once over u into q s by 1 -1 from 4 :

; CASE: the nearest position inside the tensor along rows, and one that wraps around along contiguous elements
; RUN: share-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[10, 64]
  output Y: f32[8, 64]
  kernel t grid 2 warps 1 min_blocks 1 {
    layout #q_p_s_r = reg(q:4x1, p:4x1, s:3x1, r:3x1) lane(q:16x4, *:2) warp()
    layout #q_p = reg(q:4x1, p:4x1) lane(q:16x4, *:2) warp()
    %x = ld.global X[min(max(block * 4 + p + r - 3, 0), 9), (q + s + 60) % 64] vec 1 : f32[p: 4, q: 64, r: 3, s: 3] #q_p_s_r
    %y = reduce sum %x over r, s : f32[p: 4, q: 64] #q_p
    st.global Y[block * 4 + p, q], %y vec 4
  }
}
; CHECK: %x_once_once = ld.global X[min(max(block * 4 + u - 3, 0), 9), (q * 4 + u2 + 60) % 64] {{.*}}vec 4 : f32[u2: 8, q: 16, u: 6]

; CASE: functions of positions and terms apart from each other
; RUN: share-windows
; UNCHANGED
module t target sm_80 {
  input X: f32[128]
  output Y: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #q_s = reg(q:2x1, s:3x1) lane(q:16x2, *:2) warp()
    layout #q = reg(q:2x1) lane(q:16x2, *:2) warp()
    %x = ld.global X[min(q + s, 20) + max(q, 8)] vec 1 : f32[q: 32, s: 3] #q_s
    %y = reduce sum %x over s : f32[q: 32] #q
    st.global Y[q], %y vec 2
  }
}

; CASE: bytes are converted before their windows
; RUN: share-windows
; COMPLETE:
module t target sm_80 {
  input X: u8[160]
  output Y: i32[128]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #q_s = reg(q:4x1, s:5x1) lane(q:32x4) warp()
    layout #q = reg(q:4x1) lane(q:32x4) warp()
    %x = ld.global X[q + s] vec 1 : u8[q: 128, s: 5] #q_s
    %f = cast %x : i32[q: 128, s: 5] #q_s
    %m = reduce max %f over s : i32[q: 128] #q
    st.global Y[q], %m vec 4
  }
}
; CHECK: %x_once = ld.global X[q * 4 + u] vec 4 : u8[
; CHECK-NEXT: %x_once_wide = cast %x_once : i32[
; CHECK-NEXT: %f = window %x_once_wide over u into {{q s|s q}} by 1 1 : i32[
; CHECK-NOT: cast

; CASE: the nearest position inside of a row of whole vectors, in vectors before and after the windows
; RUN: share-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f16[4, 64]
  output Y: f32[4, 64]
  kernel t grid 4 warps 1 min_blocks 1 {
    layout #q_s = reg(q:8x1, s:5x1) lane(q:8x8, *:4) warp()
    layout #q = reg(q:8x1) lane(q:8x8, *:4) warp()
    %x = ld.global X[block, min(max(q + s - 2, 0), 63)] vec 1 : f16[q: 64, s: 5] #q_s
    %f = cast %x : f32[q: 64, s: 5] #q_s
    %y = reduce sum %f over s : f32[q: 64] #q
    st.global Y[block, q], %y vec 4
  }
}
; CHECK: = ld.global X[block, min(max(q * 8 + u - 8, 0), 63)] vec 8 nearest : f16[u: 24, q: 8]
; CHECK: = window {{.*}} over u into q s by 1 1 from 6 :

; CASE: the nearest position where a vector has elements on either side of a bound, or beyond the only bound
; RUN: share-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[4, 64]
  output Y: f32[4, 64]
  output Z: f32[4, 64]
  kernel t grid 4 warps 1 min_blocks 1 {
    layout #q_s = reg(q:4x1, s:3x1) lane(q:16x4, *:2) warp()
    layout #q = reg(q:4x1) lane(q:16x4, *:2) warp()
    %x = ld.global X[block, min(max(q + s - 1, 2), 62)] vec 1 : f32[q: 64, s: 3] #q_s
    %y = reduce sum %x over s : f32[q: 64] #q
    st.global Y[block, q], %y vec 4
    %v = ld.global X[block, min(q + s, 63)] vec 1 : f32[q: 64, s: 3] #q_s
    %z = reduce sum %v over s : f32[q: 64] #q
    st.global Z[block, q], %z vec 4
  }
}
; CHECK: = ld.global X[block, min(max(q * 4 + u - 1, 2), 62)] vec 1 : f32[u: 6
; CHECK: = ld.global X[block, min(q * 4 + u2, 63)] vec 1 : f32[u2: 6
