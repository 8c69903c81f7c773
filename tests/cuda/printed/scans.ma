; The CUDA text of scans, line by line: what one thread holds, digits of warps, and digits of registers apart.

; CASE: the whole axis in neighbouring registers of a thread: no totals
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: f32[32, 4]
  output Y: f32[32, 4]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:4x1) lane(i:32x1) warp()
    layout #y = reg(c:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, j] vec 4 : f32[i: 32, j: 4] #x
    %y = scan sum %x over j into c : f32[i: 32, c: 4] #y
    st.global Y[i, c], %y vec 4
  }
}
; CHECK: float y[4];
; CHECK-NEXT: {
; CHECK-NEXT: {
; CHECK-NEXT: float run = 0.0f;
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int k = 0; k < 4; ++k) {
; CHECK-NEXT: run = run + x[k];
; CHECK-NEXT: y[k] = run;
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: *reinterpret_cast<uint4*>(Y + (y_i * 4)) = make_uint4(__float_as_uint(y[0]), __float_as_uint(y[1]), __float_as_uint(y[2]), __float_as_uint(y[3]));

; CASE: one element in a thread, and the axis over warps
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: f32[32, 4]
  output Y: f32[32, 4]
  kernel y grid 1 warps 4 min_blocks 1 {
    layout #x = reg() lane(i:32x1) warp(j:4x1)
    layout #y = reg() lane(i:32x1) warp(c:4x1)
    smem scratch : f32[e: 4096] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[i, j] vec 1 : f32[i: 32, j: 4] #x
    %y = scan sum %x over j into c scratch scratch : f32[i: 32, c: 4] #y
    st.global Y[i, c], %y vec 1
  }
}
; CHECK: float y[1];
; CHECK-NEXT: {
; CHECK-NEXT: float total[1];
; CHECK-NEXT: {
; CHECK-NEXT: float run = 0.0f;
; CHECK-NEXT: {
; CHECK-NEXT: run = run + x[0];
; CHECK-NEXT: y[0] = run;
; CHECK-NEXT: }
; CHECK-NEXT: total[0] = run;
; CHECK-NEXT: }
; CHECK-NEXT: float before[1];
; CHECK-NEXT: float* partial = reinterpret_cast<float*>(smem + scratch_at);
; CHECK-NEXT: partial[warp * 32 + lane] = total[0];
; CHECK-NEXT: __syncthreads();
; CHECK-NEXT: const int warp_place = warp % 4;
; CHECK-NEXT: const int first_warp = warp - (warp % 4);
; CHECK-NEXT: {
; CHECK-NEXT: float earlier = 0.0f, every = 0.0f;
; CHECK-NEXT: {
; CHECK-NEXT: const float part = partial[first_warp * 32 + lane];
; CHECK-NEXT: if (warp_place > 0) earlier = earlier + part;
; CHECK-NEXT: every = every + part;
; CHECK-NEXT: }
; CHECK-NEXT: {
; CHECK-NEXT: const float part = partial[(first_warp + 1) * 32 + lane];
; CHECK-NEXT: if (warp_place > 1) earlier = earlier + part;
; CHECK-NEXT: every = every + part;
; CHECK-NEXT: }
; CHECK-NEXT: {
; CHECK-NEXT: const float part = partial[(first_warp + 2) * 32 + lane];
; CHECK-NEXT: if (warp_place > 2) earlier = earlier + part;
; CHECK-NEXT: every = every + part;
; CHECK-NEXT: }
; CHECK-NEXT: {
; CHECK-NEXT: const float part = partial[(first_warp + 3) * 32 + lane];
; CHECK-NEXT: if (warp_place > 3) earlier = earlier + part;
; CHECK-NEXT: every = every + part;
; CHECK-NEXT: }
; CHECK-NEXT: before[0] = earlier;
; CHECK-NEXT: total[0] = every;
; CHECK-NEXT: }
; CHECK-NEXT: {
; CHECK-NEXT: const float front = before[0];
; CHECK-NEXT: y[0] = front + y[0];
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: *reinterpret_cast<u32*>(Y + (y_i * 4 + y_c)) = __float_as_uint(y[0]);

; CASE: digits of registers apart, from the end and without the element itself
; The values that a scan keeps have names that no array has.
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module s target sm_80 {
  input X: f32[64, 8]
  output Y: f32[64, 8]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:2x1, i:2x1, j:4x2) lane(i:32x2) warp()
    layout #y = reg(c:2x1, i:2x1, c:4x2) lane(i:32x2) warp()
    %x = ld.global X[i, j] vec 2 : f32[i: 64, j: 8] #x
    %y = scan max %x over j into c reverse exclusive : f32[i: 64, c: 8] #y
    st.global Y[i, c], %y vec 2
  }
}
; CHECK: float y[16];
; CHECK-NEXT: {
; CHECK-NEXT: float total[8];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int t = 0; t < 8; ++t) {
; CHECK-NEXT: float run = -inf;
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int k = 0; k < 2; ++k) {
; CHECK-NEXT: float x_2 = x[(1 - k) + (3 - t % 4) * 4 + (t / 4) * 2];
; CHECK-NEXT: y[(1 - k) + (3 - t % 4) * 4 + (t / 4) * 2] = run;
; CHECK-NEXT: run = max_nan(run, x_2);
; CHECK-NEXT: }
; CHECK-NEXT: total[t] = run;
; CHECK-NEXT: }
; CHECK-NEXT: float carry = -inf;
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int t = 0; t < 8; ++t) {
; CHECK-NEXT: if (t % 4 == 0) carry = -inf;
; CHECK-NEXT: const float front = carry;
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int k = 0; k < 2; ++k) {
; CHECK-NEXT: y[(1 - k) + (3 - t % 4) * 4 + (t / 4) * 2] = max_nan(front, y[(1 - k) + (3 - t % 4) * 4 + (t / 4) * 2]);
; CHECK-NEXT: }
; CHECK-NEXT: carry = max_nan(carry, total[t]);
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 16; r += 2) {
; CHECK-NEXT: *reinterpret_cast<uint2*>(Y + (y_i * 8) + ((r % 2) + (r / 4) * 2 + ((r / 2) % 2) * 8)) = make_uint2(__float_as_uint(y[r]), __float_as_uint(y[r + 1]));
