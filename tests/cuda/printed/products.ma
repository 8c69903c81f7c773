; The CUDA text of products whose operands are read by ordinary loads, line by line.

; CASE: f32 in two parts, as many terms as one sum has
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input A: f32[16, 32]
  input B: f32[32, 8]
  output C: f32[16, 8]
  kernel c grid 1 warps 1 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:1x8, i:1x16) lane(j:4x2, i:8x1) warp()
    layout #ca = reg(k:4x1, i:4x4) lane(k:8x4, i:4x1) warp()
    layout #cb = reg(j:4x1, k:2x16) lane(j:2x4, k:16x1) warp()
    smem sa : f32[i: 16, k: 32] stages 1 swizzle 0 pad 0 @ 0
    smem sb : f32[k: 32, j: 8] stages 1 swizzle 0 pad 0 @ 2048
    cp.async sa[0], A[i, k] vec 4 threads #ca
    cp.async sb[0], B[k, j] vec 4 threads #cb
    cp.commit
    cp.wait 0
    barrier
    %c = mma m16n8k8.tf32x2 smem sa[0], smem sb[0] over k : f32[i: 16, j: 8] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: float part[4];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 4; ++r) {
; CHECK-NEXT: part[r] = 0.0f;
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int k = 0; k < 4; ++k) {
; CHECK-NEXT: u32 a[1][4], a_low[1][4];
; CHECK-NEXT: u32 b[1][2], b_low[1][2];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int m = 0; m < 1; ++m) {
; CHECK-NEXT: a[m][0] = *reinterpret_cast<const u32*>(smem + sa_at + (m * 16 + lane / 4) * 128 + (k * 8 + lane % 4) * 4);
; CHECK-NEXT: a[m][1] = *reinterpret_cast<const u32*>(smem + sa_at + (m * 16 + lane / 4 + 8) * 128 + (k * 8 + lane % 4) * 4);
; CHECK-NEXT: a[m][2] = *reinterpret_cast<const u32*>(smem + sa_at + (m * 16 + lane / 4) * 128 + (k * 8 + lane % 4 + 4) * 4);
; CHECK-NEXT: a[m][3] = *reinterpret_cast<const u32*>(smem + sa_at + (m * 16 + lane / 4 + 8) * 128 + (k * 8 + lane % 4 + 4) * 4);
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int n = 0; n < 1; ++n) {
; CHECK-NEXT: b[n][0] = __float_as_uint(*reinterpret_cast<const float*>(smem + sb_at + (k * 8 + lane % 4) * 32 + (n * 8 + lane / 4) * 4));
; CHECK-NEXT: b[n][1] = __float_as_uint(*reinterpret_cast<const float*>(smem + sb_at + (k * 8 + lane % 4 + 4) * 32 + (n * 8 + lane / 4) * 4));
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int x = 0; x < 4; ++x) {
; CHECK-NEXT: split_tf32(a[x / 4][x % 4], a_low[x / 4][x % 4]);
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int x = 0; x < 2; ++x) {
; CHECK-NEXT: split_tf32(b[x / 2][x % 2], b_low[x / 2][x % 2]);
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int n = 0; n < 1; ++n) {
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int m = 0; m < 1; ++m) {
; CHECK-NEXT: mma_m16n8k8_tf32(&part[(n + 1 * m) * 4], a_low[m], b[n]);
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int n = 0; n < 1; ++n) {
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int m = 0; m < 1; ++m) {
; CHECK-NEXT: mma_m16n8k8_tf32(&part[(n + 1 * m) * 4], a[m], b_low[n]);
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int n = 0; n < 1; ++n) {
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int m = 0; m < 1; ++m) {
; CHECK-NEXT: mma_m16n8k8_tf32(&part[(n + 1 * m) * 4], a[m], b[n]);
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: float bad[4] = {};  // several sums, so that an addition need not wait for the one before
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 4; ++r) {
; CHECK-NEXT: bad[r % 4] = fmaf(part[r], 0.0f, bad[r % 4]);
; CHECK-NEXT: }
; CHECK-NEXT: if (__any_sync(0xffffffffu, (bad[0] + bad[1]) + (bad[2] + bad[3]) != 0.0f)) {
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 4; ++r) {
; CHECK-NEXT: part[r] = 0.0f;
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll 1
; CHECK-NEXT: for (int k = (0) * 8; k < (0) * 8 + 32; ++k) {
; CHECK-NEXT: float a[2];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 2; ++r) {
; CHECK-NEXT: a[r] = *reinterpret_cast<const float*>(smem + sa_at + (acc_i_i + r * 8) * 128 + k * 4);
; CHECK-NEXT: }
; CHECK-NEXT: float b[2];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 2; ++r) {
; CHECK-NEXT: b[r] = *reinterpret_cast<const float*>(smem + sb_at + k * 32 + (acc_j_j + r) * 4);
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 4; ++r) {
; CHECK-NEXT: part[r] = fmaf(a[(r / 2)], b[(r % 2)], part[r]);
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 4; ++r) {
; CHECK-NEXT: c[r] += part[r];

; CASE: f32 in two parts, in three sums
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input A: f32[16, 96]
  input B: f32[96, 8]
  output C: f32[16, 8]
  kernel c grid 1 warps 1 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:1x8, i:1x16) lane(j:4x2, i:8x1) warp()
    smem sa : f32[i: 16, k: 96] stages 1 swizzle 0 pad 0 @ 0
    smem sb : f32[k: 96, j: 8] stages 1 swizzle 0 pad 0 @ 6144
    barrier
    %c = mma m16n8k8.tf32x2 smem sa[0], smem sb[0] over k : f32[i: 16, j: 8] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: #pragma unroll 1
; CHECK-NEXT: for (int first = 0; first < 3; ++first) {
; CHECK-NEXT: float part[4];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 4; ++r) {
; CHECK-NEXT: part[r] = 0.0f;
; CHECK: for (int k = 0; k < 4; ++k) {
; CHECK-NEXT: u32 a[1][4], a_low[1][4];
; CHECK: a[m][3] = *reinterpret_cast<const u32*>(smem + sa_at + (m * 16 + lane / 4 + 8) * 384 + ((first * 4 + k) * 8 + lane % 4 + 4) * 4);
; CHECK: b[n][0] = __float_as_uint(*reinterpret_cast<const float*>(smem + sb_at + ((first * 4 + k) * 8 + lane % 4) * 32 + (n * 8 + lane / 4) * 4));
; CHECK-NEXT: b[n][1] = __float_as_uint(*reinterpret_cast<const float*>(smem + sb_at + ((first * 4 + k) * 8 + lane % 4 + 4) * 32 + (n * 8 + lane / 4) * 4));
; CHECK: for (int k = (first * 4) * 8; k < (first * 4) * 8 + 32; ++k) {

; CASE: f32 in two parts, in two sums
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input A: f32[16, 64]
  input B: f32[64, 8]
  output C: f32[16, 8]
  kernel c grid 1 warps 1 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:1x8, i:1x16) lane(j:4x2, i:8x1) warp()
    smem sa : f32[i: 16, k: 64] stages 1 swizzle 0 pad 0 @ 0
    smem sb : f32[k: 64, j: 8] stages 1 swizzle 0 pad 0 @ 4096
    barrier
    %c = mma m16n8k8.tf32x2 smem sa[0], smem sb[0] over k : f32[i: 16, j: 8] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: for (int first = 0; first < 2; ++first) {
; CHECK: b[n][0] = __float_as_uint(*reinterpret_cast<const float*>(smem + sb_at + ((first * 4 + k) * 8 + lane % 4) * 32
