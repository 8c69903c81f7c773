; Elementwise ops on windows are computed once for each element that the windows share.

; CASE: a condition on the places of a padded row, and a function of the elements, along vectors that begin before them
; RUN: sink-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[4, 64]
  output Y: f32[4, 64]
  kernel t grid 4 warps 1 min_blocks 1 {
    layout #q_s = reg(q:4x1, s:5x1) lane(q:16x4, *:2) warp()
    layout #u = reg(u:12x1) lane(q:16x1, *:2) warp()
    layout #one = reg() lane(*:32) warp()
    layout #q = reg(q:4x1) lane(q:16x4, *:2) warp()
    %u = ld.global X[block, q * 4 + u - 4] where q * 4 + u >= 4 and q * 4 + u < 68 vec 4 : f32[u: 12, q: 16] #u
    %x = window %u over u into q s by 1 1 from 2 : f32[q: 64, s: 5] #q_s
    %inf = const -inf : f32 #one
    %c = index q + s >= 2 and q + s < 66 : bool[q: 64, s: 5] #q_s
    %a = abs %x : f32[q: 64, s: 5] #q_s
    %t = select %c, %a, %inf : f32[q: 64, s: 5] #q_s
    %y = reduce max %t over s : f32[q: 64] #q
    st.global Y[block, q], %y vec 4
  }
}
; CHECK: %c_once = index q * 4 + u // 4 * 4 >= 4 and q * 4 + u // 4 * 4 < 68 : bool[u: 12, q: 16] #u
; CHECK-NEXT: %a_once = abs %u : f32[u: 12, q: 16] #u
; CHECK-NEXT: %t_once = select %c_once, %a_once, %inf : f32[u: 12, q: 16] #u
; CHECK-NEXT: %t = window %t_once over u into q s by 1 1 from 2 : f32[q: 64, s: 5] #q_s
; CHECK-NEXT: reduce max %t

; CASE: windows of rows and columns, two elements apart, whose terms go backwards along the columns
; RUN: sink-windows
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[9, 66]
  output Y: f32[4, 64]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #q_p_s_r = reg(q:2x1, p:4x1, s:3x1, r:3x1) lane(q:32x2) warp()
    layout #q_p_s_v = reg(q:2x1, s:3x1, v:9x1) lane(q:32x2) warp()
    layout #v_u = reg(u:4x1, v:9x1) lane(q:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    layout #q_p = reg(q:2x1, p:4x1) lane(q:32x2) warp()
    %w = ld.global X[v, q * 2 + u] vec 1 : f32[u: 4, q: 32, v: 9] #v_u
    %v = window %w over u into q s by 1 -1 from 2 : f32[q: 64, s: 3, v: 9] #q_p_s_v
    %x = window %v over v into p r by 2 1 : f32[p: 4, q: 64, s: 3, r: 3] #q_p_s_r
    %one = const 1.0 : f32 #one
    %c = index p * 2 + r >= 1 and q - s < 63 : bool[p: 4, q: 64, s: 3, r: 3] #q_p_s_r
    %t = select %c, %x, %one : f32[p: 4, q: 64, s: 3, r: 3] #q_p_s_r
    %y = reduce min %t over r, s : f32[p: 4, q: 64] #q_p
    st.global Y[p, q], %y vec 2
  }
}
; CHECK: %c_once_once = index v >= 1 and {{.*}} : bool[u: 4, q: 32, v: 9] #v_u
; CHECK: %t_once_once = select %c_once_once, %w, %one
; CHECK-NEXT: %t_once = window %t_once_once over u into q s by 1 -1 from 2
; CHECK-NEXT: %t = window %t_once over v into p r by 2 1

; CASE: a condition on positions or on terms alone, and one that other ops read
; RUN: sink-windows
; UNCHANGED
module t target sm_80 {
  input X: f32[4, 66]
  output Y: f32[4, 64]
  output Z: f32[4, 64]
  kernel t grid 4 warps 1 min_blocks 1 {
    layout #q_s = reg(q:4x1, s:3x1) lane(q:16x4, *:2) warp()
    layout #u = reg(u:6x1) lane(q:16x1, *:2) warp()
    layout #one = reg() lane(*:32) warp()
    layout #q = reg(q:4x1) lane(q:16x4, *:2) warp()
    %u = ld.global X[block, q * 4 + u] vec 1 : f32[u: 6, q: 16] #u
    %x = window %u over u into q s by 1 1 : f32[q: 64, s: 3] #q_s
    %inf = const -inf : f32 #one
    %c = index s >= 1 or q < 7 : bool[q: 64, s: 3] #q_s
    %t = select %c, %x, %inf : f32[q: 64, s: 3] #q_s
    %y = reduce max %t over s : f32[q: 64] #q
    st.global Y[block, q], %y vec 4
    %v = window %u over u into q s by 1 1 : f32[q: 64, s: 3] #q_s
    %d = index q + s >= 1 : bool[q: 64, s: 3] #q_s
    %r = select %d, %v, %inf : f32[q: 64, s: 3] #q_s
    %e = select %d, %r, %t : f32[q: 64, s: 3] #q_s
    %z = reduce max %e over s : f32[q: 64] #q
    st.global Z[block, q], %z vec 4
  }
}
