; The CUDA text of small vectors, masks and digits of positions, line by line.

; CASE: two bytes in one access, which fill no register together
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: i8[64]
  output Y: i32[64]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(i:2x1) lane(i:32x2) warp()
    %x = ld.global X[i] vec 2 : i8[i: 64] #x
    %y = cast %x : i32[i: 64] #x
    st.global Y[i], %y vec 2
  }
}
; CHECK: signed char x[2];
; CHECK-NEXT: {
; CHECK-NEXT: x[0] = (signed char)((*reinterpret_cast<const u16*>(X + (x_i))) >> 0);
; CHECK-NEXT: x[1] = (signed char)((*reinterpret_cast<const u16*>(X + (x_i))) >> 8);

; CASE: both comparisons of a mask without alternatives are one condition
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: f32[50, 30]
  output Y: f32[64, 32]
  kernel y grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:4x1, i:4x16) lane(j:8x4, i:4x1) warp(i:4x4)
    smem s : f32[i: 64, j: 32] stages 1 swizzle 0 pad 0 @ 0
    cp.async s[0], X[i, j] where i < 50 and j < 30 vec 1 threads #x
    cp.commit
    cp.wait 0
    barrier
    %y = ld.shared s[0] vec 4 : f32[i: 64, j: 32] #x
    st.global Y[i, j], %y vec 4
  }
}
; CHECK: const int at_i = x_i + (r / 4) * 16;
; CHECK-NEXT: cp_async_4(shared + s_at + (x_i + (r / 4) * 16) * 128 + (x_j + (r % 4)) * 4, X + (x_i * 30 + x_j) + ((r % 4) + ((r / 4) * 16) * 30), at_i < 50 && at_j < 30);

; CASE: a digit that is subtracted may be negative, so that its half is rounded down
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  output Y: i32[64]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(i:4x1, i:2x4) lane(i:8x8, *:4) warp()
    %y = index (1 - i % 4) // 2 split : i32[i: 64] #x
    st.global Y[i], %y vec 4
  }
}
; CHECK: int y[8];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 8; ++r) {
; CHECK-NEXT: y[r] = floor_div(1 - (x_i % 4 + (r % 4)), 2);

; CASE: vectors at the nearest position of a row, whose ends are copied into those beyond it
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: f16[72]
  output Y: f16[64]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(i:4x1) lane(i:16x4, *:2) warp()
    %x = ld.global X[min(max(i - 4, 0), 55)] vec 4 nearest : f16[i: 64] #x
    st.global Y[i], %x vec 4
  }
}
; CHECK: const uint2 part = *reinterpret_cast<const uint2*>(X + (min(max(at_i - 4, 0), 52)));
; CHECK-NEXT: const bool low = (at_i - 4) < 0;
; CHECK-NEXT: const bool high = (at_i - 4) > 52;
; CHECK-NEXT: const uint2 word = make_uint2(low ? __byte_perm(part.x, 0, 0x1010) : high ? __byte_perm(part.y, 0, 0x3232) : part.x, low ? __byte_perm(part.x, 0, 0x1010) : high ? __byte_perm(part.y, 0, 0x3232) : part.y);

; CASE: a permutation of packed registers copies words where these have neighbours, and elements elsewhere
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: f16[4, 64]
  output Y: f16[4, 64]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:2x1, i:4x1) lane(j:32x2) warp()
    layout #y = reg(i:4x1, j:2x1) lane(j:32x2) warp()
    layout #z = reg(j:2x1, i:2x2, i:2x1) lane(j:32x2) warp()
    %x = ld.global X[i, j] vec 2 : f16[i: 4, j: 64] #x
    %y = convert %x : f16[i: 4, j: 64] #y
    %z = convert %x : f16[i: 4, j: 64] #z
    st.global Y[i, j], %z vec 2
    st.global Y[i, j], %y vec 1
  }
}
; CHECK: y[0] = (u32)half_of(x[0 / 2], 0 % 2) | (u32)half_of(x[2 / 2], 2 % 2) << 16;
; CHECK: z[0] = x[0];
; CHECK-NEXT: z[1] = x[2];
; CHECK-NEXT: z[2] = x[1];
; CHECK-NEXT: z[3] = x[3];

; CASE: bounds on the position along one axis have a term for the registers along the other one
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module t target sm_90a {
  output Y: i32[64, 32]
  param w: i32 <= 1000
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #i_j = reg(j:2x1, i:2x8, j:4x8) lane(j:4x2, i:8x1) warp(i:4x16)
    %m = index j - i < w and (j < 20 or j + 3 * i > w) split : bool[i: 64, j: 32] #i_j
    %one = const 1 : i32[i: 64, j: 32] #i_j
    %two = const 2 : i32[i: 64, j: 32] #i_j
    %y = select %m, %one, %two : i32[i: 64, j: 32] #i_j
    st.global Y[i, j], %y vec 2
  }
}
; CHECK: const bool m_ = ((r % 2) + (r / 4) * 8 <= m_most + ((r / 2) % 2) * 8)
; CHECK-SAME: ((r % 2) + (r / 4) * 8 >= m_least + -3 * (((r / 2) % 2) * 8))
