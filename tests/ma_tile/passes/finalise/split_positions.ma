; Functions of tile positions in kernels of warpgroups are computed from a term of the thread and one of the register.

; CASE: a position is split, and a value of the whole tile is not
; RUN: split-positions
; COMPLETE:
; AGAIN
module t target sm_90a {
  output Y: i32[1024]
  kernel k grid 1 warps 8 min_blocks 1 consumers 2 {
    layout #i = reg(i:4x1) lane(i:32x4) warp(i:4x128)
    %p = index consumer * 512 + i : i32[i: 512] #i
    %q = index consumer * 2 : i32[i: 512] #i
    %y = add %p, %q : i32[i: 512] #i
    st.global Y[consumer * 512 + i], %y vec 4
  }
}
; CHECK: %p = index consumer * 512 + i split :
; CHECK-NEXT: %q = index consumer * 2 :

; CASE: a thread of a warp has few registers
; RUN: split-positions
; ARCH: sm_80
; UNCHANGED
module t target sm_80 {
  output Y: i32[128]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    %y = index i : i32[i: 128] #i
    st.global Y[i], %y vec 1
  }
}
