; The CUDA text of modules with sizes that are known only at launch.

; CASE: strides and offsets are expressions of the sizes, in 64 bits where their largest values need them
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module sums target sm_80 {
  input X: f32[M, N, 4]
  temp T: f32[(M + 63) // 64, 4]
  temp U: f32[N]
  output Y: f32[M]
  param M: i32 <= 1000
  param N: i32 <= 1000000
  kernel y grid (M + 63) // 64 * 2 warps 4 min_blocks 1 {
    let i0 = block // 2
    layout #i = reg() lane(i:32x1) warp(i:2x32, *:2)
    %x = ld.global X[i0 * 64 + i, 3, 1] where i0 * 64 + i < M vec 1 : f32[i: 64] #i
    st.global Y[i0 * 64 + i], %x where i0 * 64 + i < M vec 1
  }
}
; CHECK: sums__y(const float* __restrict__ X, float* T, float* U, float* __restrict__ Y, int M, int N) {
; CHECK: const int i0 = block / 2;
; CHECK: X + ((long long)(i0 * 64 + {{.*}}) * (N * 4) + (long long)(3) * 4 + (long long)(1))
; CHECK: prepare(Plan* plan, const void* X, void* Y, int M, int N, void* workspace, cudaStream_t stream) {
; CHECK: if (M < 0 || M > 1000) {
; CHECK-NEXT: fprintf(stderr, "sums: M is %lld; allowed are 0 to 1000\n", (long long)M);
; CHECK-NEXT: return cudaErrorInvalidValue;
; CHECK-NEXT: }
; CHECK-NEXT: if (N < 0 || N > 1000000) {
; CHECK: plan->T = reinterpret_cast<float*>(static_cast<char*>(workspace));
; CHECK: plan->U = reinterpret_cast<float*>(static_cast<char*>(workspace) + (((long long)M + 63) / 64 * 16 + 255) / 256 * 256);
; CHECK: const long long blocks = ((long long)M + 63) / 64 * 2;
; CHECK-NEXT: if (blocks > 2147483647) return cudaErrorInvalidConfiguration;
; CHECK-NEXT: plan->y_blocks = (unsigned)blocks;
; CHECK: if (plan.y_blocks) {
; CHECK-NEXT: sums__y<<<plan.y_blocks, 128, 0, stream>>>(plan.X, plan.T, plan.U, plan.Y, plan.M, plan.N);
; CHECK: extern "C" size_t sums_workspace(int M, int N) {
; CHECK-SAME: return (((long long)M + 63) / 64 * 16 + 255) / 256 * 256 + ((long long)N * 4 + 255) / 256 * 256; }
; CHECK: sums_launch(const void* X, void* Y, int M, int N, void* workspace, cudaStream_t stream) {
