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

; CASE: a condition of several comparisons is bounds on the position along one axis
; RUN: split-positions
; COMPLETE:
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module t target sm_90a {
  output Y: i32[1024]
  param n: i32 <= 1000
  param w: i32
  kernel k grid 1 warps 8 min_blocks 1 consumers 2 {
    layout #i = reg(i:4x1) lane(i:32x4) warp(i:4x128)
    %m = index consumer * 512 + i < n and (i < 700 or i - consumer > w) and i < 1000 : bool[i: 512] #i
    %one = const 1 : i32[i: 512] #i
    %two = const 2 : i32[i: 512] #i
    %y = select %m, %one, %two : i32[i: 512] #i
    st.global Y[consumer * 512 + i], %y vec 4
  }
}
; CHECK: const int m_most = n_ - consumer * 512 - i_i - 1;
; CHECK-NEXT: const int m_most_2 = -i_i + 699;
; CHECK-NEXT: const int m_least = (int)min(max({{.*}}(long long)w
; CHECK-NEXT: const int m_most_3 = -i_i + 999;
; CHECK: const bool m_ = (r <= min(m_most, m_most_3)) & ((r <= m_most_2) | (r >= m_least));

; CASE: a range has its two comparisons
; RUN: split-positions
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module t target sm_90a {
  output Y: i32[1024]
  kernel k grid 1 warps 8 min_blocks 1 consumers 2 {
    layout #i = reg(i:4x1) lane(i:32x4) warp(i:4x128)
    %m = index i < 700 and i > 10 : bool[i: 512] #i
    %one = const 1 : i32[i: 512] #i
    %two = const 2 : i32[i: 512] #i
    %y = select %m, %one, %two : i32[i: 512] #i
    st.global Y[consumer * 512 + i], %y vec 4
  }
}
; CHECK: const bool m_ = (i_i - 700 < -(r)) && (i_i - 10 > -(r));

; CASE: quotients and remainders along an axis are computed from the digit that registers change, also in kernels of warps
; RUN: split-positions
; COMPLETE:
; AGAIN
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
; ARCH: sm_80
module t target sm_80 {
  output Y: i32[4, 128]
  kernel k grid 4 warps 4 min_blocks 1 {
    layout #near = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:2, j:2x64)
    %m = index abs((block * 128 + j) // 56 - 3) < 2 and abs((block * 128 + j) % 56 - (j + 3) % 14) <= 20 : bool[j: 128] #near
    %one = const 1 : i32[j: 128] #near
    %two = const 2 : i32[j: 128] #near
    %y = select %m, %one, %two : i32[j: 128] #near
    st.global Y[block, j], %y vec 2
  }
}
; CHECK: const bool m_ = ((u32)((block * 16 + (near_j / 8 + (r / 2))) / 7 - 3 + 1) <= 2u)
; CHECK-SAME: (near_j / 8 + (r / 2))) % 7 * 8 + (near_j % 8 + (r % 2)) - (at_j + 3) % 14 + 20) <= 40u);
