; The CUDA text of small modules without warpgroups.

; CASE: rows: packed halves, 16-byte vectors, a mask on rows, a scalar argument
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module run target sm_80 {
  input X: f16[77, 64]
  input W: f16[64]
  output Y: f16[77, 64]
  param scale: f32
  kernel y grid 2 warps 4 min_blocks 3 {
    let r0 = block * 64
    let unread = block * 2
    layout #x = reg(j:8x1, i:4x16) lane(j:8x8, i:4x1) warp(i:4x4)
    layout #w = reg(j:8x1) lane(j:8x8, *:4) warp(*:4)
    %x = ld.global X[r0 + i, j] where r0 + i < 77 vec 8 : f16[i: 64, j: 64] #x
    %w = ld.global W[j] vec 8 : f16[j: 64] #w
    %a = cast %x : f32[i: 64, j: 64] #x
    %b = cast %w : f32[j: 64] #w
    %c = mul %a, %b : f32[i: 64, j: 64] #x
    %t = tanh %c : f32[i: 64, j: 64] #x
    %y = cast %t : f16[i: 64, j: 64] #x
    st.global Y[r0 + i, j], %y where r0 + i < 77 vec 8
  }
}
; CHECK-NOT: smem
; CHECK: extern "C" __global__ void __launch_bounds__(128, 3)
; CHECK-NEXT: run__y(const f16* __restrict__ X, const f16* __restrict__ W, f16* __restrict__ Y, float scale) {
; CHECK-NOT: unread
; CHECK: const int {{r0_?}} = block * 64;
; CHECK: u32 x[16];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 32; r += 8) {
; CHECK: const uint4 word = {{.*}} < 77 ? *reinterpret_cast<const uint4*>(X + {{.*}}) : make_uint4(0, 0, 0, 0);
; CHECK: const uint4 word = *reinterpret_cast<const uint4*>(W + {{.*}});
; CHECK: f16_to_f32(half_of(x[
; CHECK: tanhf(
; CHECK: u32 y[16];
; CHECK: = pack_f16(
; CHECK: if ({{.*}} < 77) {
; CHECK-NEXT: *reinterpret_cast<uint4*>(Y + {{.*}}) = make_uint4(y[
; CHECK: #ifndef __CUDACC_RTC__
; CHECK: static cudaError_t prepare(Plan* plan, const void* X, const void* W, void* Y, float scale, void* workspace, {{.*}}) {
; CHECK: tensors[] = {{[{][{]}}"X", X}, {"W", W}, {"Y", Y}, {"the plan", plan}};
; CHECK: plan->W = static_cast<const f16*>(W);
; CHECK: static cudaError_t launch(const Plan& plan, cudaStream_t stream) {
; CHECK: run__y<<<2, 128, 0, stream>>>(plan.X, plan.W, plan.Y, plan.scale);
; CHECK: return status;
; CHECK: extern "C" size_t run_workspace(void) { return 0; }
; CHECK: extern "C" int run_launch(const void* X, const void* W, void* Y, float scale, void* workspace, {{.*}}) {
; CHECK: #endif

; CASE: rows addressed through a table
; A 4-byte load for the table, then 16-byte vectors.
; ARCH: sm_80
; PRINT: cuda
module gather target sm_80 {
  input X: f32[100, 64]
  input T: i32[32]
  output Y: f32[32, 64]
  kernel y grid 1 warps 4 min_blocks 1 {
    layout #y = reg(j:4x1, i:4x8) lane(j:16x4, i:2x1) warp(i:4x2)
    layout #t = reg(i:4x8) lane(*:16, i:2x1) warp(i:4x2)
    %t = ld.global T[i] vec 1 : i32[i: 32] #t
    %x = ld.global X[%t, j] vec 4 : f32[i: 32, j: 64] #y
    st.global Y[i, j], %x vec 4
  }
}
; CHECK: gather__y(const float* __restrict__ X, const int* __restrict__ T, float* __restrict__ Y) {
; CHECK: int t[4];
; CHECK: t[r] = {{.*}}(T +
; CHECK: float x[16];
; CHECK: const uint4 word = *reinterpret_cast<const uint4*>(X + {{.*}}t[{{.*}}]{{.*}} * 64
; CHECK: x[r + 3] = __uint_as_float(word.w);
; CHECK: *reinterpret_cast<uint4*>(Y +

; CASE: double precision
; A reduction inside a warp needs five shuffles and no shared memory.
; ARCH: sm_80
; PRINT: cuda
module wide target sm_80 {
  input X: f64[16, 64]
  output Y: f64[16]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:2x1, i:16x1) lane(j:32x2) warp()
    layout #y = reg(i:16x1) lane(*:32) warp()
    %x = ld.global X[i, j] vec 2 : f64[i: 16, j: 64] #x
    %e = exp %x : f64[i: 16, j: 64] #x
    %m = reduce max %e over j : f64[i: 16] #y
    %l = log %m : f64[i: 16] #y
    st.global Y[i], %l vec 1
  }
}
; CHECK: wide__y(const double* __restrict__ X, double* __restrict__ Y) {
; CHECK-NOT: smem
; CHECK-NOT: warp =
; CHECK-NOT: expf(
; CHECK: double e[32];
; CHECK: = exp(
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 1)
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 2)
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 4)
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 8)
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 16)
; CHECK-NOT: __shfl
; CHECK: = log(
; CHECK-NOT: __syncthreads

; CASE: 8-bit operands
; 16 elements a copy, four to a register, 32-bit accumulators.
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module bytes target sm_80 {
  input A: i8[32, 64]
  input B: i8[16, 64]
  output C: i32[32, 16]
  kernel c grid 1 warps 2 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #ca = reg(k:16x1, i:2x16) lane(k:4x16, i:8x1) warp(i:2x8)
    layout #cb = reg(k:16x1) lane(k:4x16, n:8x1) warp(n:2x8)
    smem sa : i8[i: 32, k: 64] stages 1 swizzle 64 pad 0 @ 0
    smem sb : i8[n: 16, k: 64] stages 1 swizzle 64 pad 0 @ 2048
    cp.async sa[0] swizzle 64, A[i, k] vec 16 threads #ca
    cp.async sb[0] swizzle 64, B[n, k] vec 16 threads #cb
    cp.commit
    cp.wait 0
    barrier
    %c = mma m16n8k32.s8 smem sa[0] swizzle 64, smem sb[0] swizzle 64 over k : i32[i: 32, n: 16] #acc
    st.global C[i, n], %c vec 2
  }
}
; CHECK: mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
; CHECK: bytes__c(const signed char* __restrict__ A, const signed char* __restrict__ B, int* __restrict__ C) {
; CHECK: cp_async_16(shared + {{.*}}, A + {{.*}}, true);
; CHECK: cp_async_16(shared + {{.*}}, B + {{.*}}, true);
; CHECK-NEXT: cp_async_commit();
; CHECK-NEXT: cp_async_wait<0>();
; CHECK-NEXT: __syncthreads();
; CHECK: int c[8];
; CHECK: for (int k = 0; k < 2; ++k) {
; CHECK: mma_m16n8k32_s8(&c[
; CHECK-NOT: ldmatrix
; CHECK: make_uint2((u32)c[r], (u32)c[r + 1])

; CASE: a product without a matrix instruction
; ARCH: sm_80
; PRINT: cuda
module plain target sm_80 {
  input A: f32[16, 8]
  input B: f32[8, 16]
  output C: f32[16, 16]
  kernel c grid 1 warps 1 min_blocks 1 {
    layout #acc = reg(i:4x1, j:2x1) lane(j:8x2, i:4x4) warp()
    layout #ca = reg(k:4x1) lane(k:2x4, i:16x1) warp()
    layout #cb = reg(j:4x1) lane(j:4x4, k:8x1) warp()
    smem sa : f32[i: 16, k: 8] stages 1 swizzle 0 pad 0 @ 0
    smem sb : f32[k: 8, j: 16] stages 1 swizzle 0 pad 0 @ 512
    cp.async sa[0], A[i, k] vec 4 threads #ca
    cp.async sb[0], B[k, j] vec 4 threads #cb
    cp.commit
    cp.wait 0
    barrier
    %c = mma fma smem sa[0], smem sb[0] over k : f32[i: 16, j: 16] #acc
    st.global C[i, j], %c vec 1
  }
}
; CHECK-NOT: mma.sync
; CHECK-NOT: swizzle
; CHECK: float c[8];
; CHECK: for (int k = 0; k < 8; ++k) {
; CHECK: = fmaf(a[{{.*}}], b[{{.*}}], c[r]);

; CASE: loops that are named as the operands of a product without a matrix instruction
; ARCH: sm_80
; PRINT: cuda
module plain target sm_80 {
  input A: f32[3, 16, 8]
  input B: f32[3, 8, 16]
  output C: f32[3, 16, 16]
  kernel c grid 1 warps 1 min_blocks 1 {
    layout #acc = reg(i:4x1, j:2x1) lane(j:8x2, i:4x4) warp()
    layout #ca = reg(k:4x1) lane(k:2x4, i:16x1) warp()
    layout #cb = reg(j:4x1) lane(j:4x4, k:8x1) warp()
    smem sa : f32[i: 16, k: 8] stages 3 swizzle 0 pad 0 @ 0
    smem sb : f32[k: 8, j: 16] stages 3 swizzle 0 pad 0 @ 1536
    for b in 0..3 carry() {
      cp.async sa[b], A[b, i, k] vec 4 threads #ca
      cp.async sb[b], B[b, k, j] vec 4 threads #cb
      cp.commit
      cp.wait 0
      barrier
      %c = mma fma smem sa[b], smem sb[b] over k : f32[i: 16, j: 16] #acc
      st.global C[b, i, j], %c vec 1
      yield
    }
  }
}
; CHECK: for (int b_ = 0; b_ < 3; ++b_) {
; CHECK: b[r] = *reinterpret_cast<const float*>(smem + sb_at + b_ * sb_bytes

; CASE: a reduction across warps
; Partial results go through shared memory.
; ARCH: sm_80
; PRINT: cuda
module reduce target sm_80 {
  input X: f32[8, 256]
  output Y: f32[8, 256]
  output M: f32[8]
  kernel reduce grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:2x1, i:8x1) lane(j:32x2) warp(j:4x64)
    layout #r = reg(i:8x1) lane(*:32) warp(*:4)
    smem scratch : f32[e: 1024] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[i, j] vec 2 : f32[i: 8, j: 256] #x
    %m = reduce max %x over j scratch scratch : f32[i: 8] #r
    barrier
    %d = sub %x, %m : f32[i: 8, j: 256] #x
    %e = exp %d : f32[i: 8, j: 256] #x
    %s = reduce sum %e over j scratch scratch : f32[i: 8] #r
    %y = div %e, %s : f32[i: 8, j: 256] #x
    st.global Y[i, j], %y vec 2
    st.global M[i], %m vec 1
  }
}
; CHECK: reduce__reduce(
; CHECK: extern __shared__ __align__(1024) unsigned char smem[];
; CHECK: max_nan(
; CHECK: max_nan({{.*}}, __shfl_xor_sync(0xffffffffu, {{.*}}, 16))
; CHECK: float* partial = reinterpret_cast<float*>(smem +
; CHECK: __syncthreads();
; CHECK: max_nan({{.*}}, partial[
; CHECK: }
; CHECK: __syncthreads();
; CHECK: expf(
; CHECK: + __shfl_xor_sync(0xffffffffu, {{.*}}, 16)
; CHECK: __syncthreads();
; CHECK: + partial[
; CHECK: y[r] = __fdiv_rn(e[r], s[

; CASE: a pipelined product of a row-major operand
; ARCH: sm_80
; RUN: pair-fragments
; PRINT: cuda
module gemm target sm_80 {
  input A: f16[64, 128]
  input B: f16[64, 128]
  output C: f32[64, 64]
  kernel gemm grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:4x8, i:2x16) lane(n:4x2, i:8x1) warp(i:2x32, n:2x32)
    layout #ca = reg(k:8x1, i:2x32) lane(k:4x8, i:8x1) warp(i:4x8)
    layout #cb = reg(k:8x1, n:2x32) lane(k:4x8, n:8x1) warp(n:4x8)
    smem sa : f16[i: 64, k: 32] stages 2 swizzle 64 pad 0 @ 0
    smem sb : f16[n: 64, k: 32] stages 2 swizzle 64 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    cp.async sa[0] swizzle 64, A[i, k] vec 8 threads #ca
    cp.async sb[0] swizzle 64, B[n, 0 * 32 + k] vec 8 threads #cb
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t + 1 < 4 {
        cp.async sa[(t + 1) % 2] swizzle 64, A[i, (t + 1) * 32 + k] vec 8 threads #ca
        cp.async sb[(t + 1) % 2] swizzle 64, B[n, (t + 1) * 32 + k] vec 8 threads #cb
      }
      cp.commit
      cp.wait 1
      barrier
      %next = mma m16n8k16.f16 smem sa[t % 2] swizzle 64, smem sb[t % 2] swizzle 64 + %acc over k : f32[i: 64, n: 64] #acc
      barrier
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}
; CHECK: float acc[32];
; CHECK: for (int t = 0; t < 4; ++t) {
; CHECK: if (t + 1 < 4) {
; CHECK: cp_async_16(shared + {{.*}}(t + 1) % 2
; CHECK: cp_async_commit();
; CHECK-NEXT: cp_async_wait<1>();
; CHECK-NEXT: __syncthreads();
; CHECK: ldmatrix_x4(a[
; CHECK: ldmatrix_x4(b[0]
; CHECK: mma_m16n8k16_f16(&acc[{{.*}}], a[m], b[0]);
; CHECK: __syncthreads();
; CHECK: make_uint2(__float_as_uint(acc[r]), __float_as_uint(acc[r + 1]))

; CASE: a pipelined product of a column-major operand
; ldmatrix transposes.
; ARCH: sm_80
; RUN: pair-fragments
; PRINT: cuda
module gemm target sm_80 {
  input A: f16[64, 128]
  input B: f16[128, 64]
  output C: f32[64, 64]
  kernel gemm grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:4x8, i:2x16) lane(n:4x2, i:8x1) warp(i:2x32, n:2x32)
    layout #ca = reg(k:8x1, i:2x32) lane(k:4x8, i:8x1) warp(i:4x8)
    layout #cb = reg(n:8x1, k:2x16) lane(n:8x8, k:4x1) warp(k:4x4)
    smem sa : f16[i: 64, k: 32] stages 2 swizzle 64 pad 0 @ 0
    smem sb : f16[k: 32, n: 64] stages 2 swizzle 128 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    cp.async sa[0] swizzle 64, A[i, k] vec 8 threads #ca
    cp.async sb[0] swizzle 128, B[0 * 32 + k, n] vec 8 threads #cb
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t + 1 < 4 {
        cp.async sa[(t + 1) % 2] swizzle 64, A[i, (t + 1) * 32 + k] vec 8 threads #ca
        cp.async sb[(t + 1) % 2] swizzle 128, B[(t + 1) * 32 + k, n] vec 8 threads #cb
      }
      cp.commit
      cp.wait 1
      barrier
      %next = mma m16n8k16.f16 smem sa[t % 2] swizzle 64, smem sb[t % 2] swizzle 128 + %acc over k : f32[i: 64, n: 64] #acc
      barrier
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}
; CHECK: float acc[32];
; CHECK: for (int t = 0; t < 4; ++t) {
; CHECK: if (t + 1 < 4) {
; CHECK: cp_async_16(shared + {{.*}}(t + 1) % 2
; CHECK: cp_async_commit();
; CHECK-NEXT: cp_async_wait<1>();
; CHECK-NEXT: __syncthreads();
; CHECK: ldmatrix_x4(a[
; CHECK: ldmatrix_x4_trans(b[0]
; CHECK: mma_m16n8k16_f16(&acc[{{.*}}], a[m], b[0]);
; CHECK: __syncthreads();
; CHECK: make_uint2(__float_as_uint(acc[r]), __float_as_uint(acc[r + 1]))

; CASE: back-to-back products
; The first result is an operand of the second as it is.
; ARCH: sm_80
; RUN: pair-fragments
; PRINT: cuda
module chained target sm_80 {
  input Q: f16[64, 64]
  input K: f16[96, 64]
  input V: f16[96, 64]
  output O: f16[64, 64]
  kernel chained grid 1 warps 4 min_blocks 1 {
    layout #s = reg(j:2x1, i:2x8, j:4x8, i:1x16) lane(j:4x2, i:8x1) warp(i:4x16, j:1x32)
    layout #o = reg(d:2x1, i:2x8, d:8x8, i:1x16) lane(d:4x2, i:8x1) warp(i:4x16, d:1x64)
    layout #p = reg(j:2x1, i:2x8, j:2x8, j:2x16, i:1x16) lane(j:4x2, i:8x1) warp(i:4x16, *:1)
    layout #qa = reg(d:2x1, i:2x8, d:2x8, d:4x16, i:1x16) lane(d:4x2, i:8x1) warp(i:4x16, *:1)
    layout #row = reg(i:2x8, i:1x16) lane(*:4, i:8x1) warp(i:4x16, *:1)
    layout #c = reg(d:8x1, j:2x16) lane(d:8x8, j:4x1) warp(j:4x4)
    layout #cq = reg(d:8x1, i:4x16) lane(d:8x8, i:4x1) warp(i:4x4)
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sk : f16[j: 32, d: 64] stages 2 swizzle 128 pad 0 @ 8192
    smem sv : f16[j: 32, d: 64] stages 2 swizzle 128 pad 0 @ 16384
    cp.async sq[0] swizzle 128, Q[i, d] vec 8 threads #cq
    cp.async sk[0] swizzle 128, K[j, d] vec 8 threads #c
    cp.async sv[0] swizzle 128, V[j, d] vec 8 threads #c
    cp.commit
    cp.wait 0
    barrier
    %q = ld.matrix sq[0] swizzle 128 at d 0 : f16[i: 64, d: 64] #qa
    %zero = const 0.0 : f32[i: 64, d: 64] #o
    %lz = const 0.0 : f32[i: 64] #row
    %o, %l = for t in 0..3 carry(%acc = %zero, %sum = %lz) {
      cp.wait 0
      barrier
      if t + 1 < 3 {
        cp.async sk[(t + 1) % 2] swizzle 128, K[(t + 1) * 32 + j, d] vec 8 threads #c
        cp.async sv[(t + 1) % 2] swizzle 128, V[(t + 1) * 32 + j, d] vec 8 threads #c
        cp.commit
      }
      %s = mma m16n8k16.f16 %q, smem sk[t % 2] swizzle 128 over d : f32[i: 64, j: 32] #s
      %e = exp %s : f32[i: 64, j: 32] #s
      %part = reduce sum %e over j : f32[i: 64] #row
      %sum2 = add %sum, %part : f32[i: 64] #row
      %p = narrow %e : f16[i: 64, j: 32] #s
      %pa = convert %p : f16[i: 64, j: 32] #p
      %next = mma m16n8k16.f16 %pa, smem sv[t % 2] swizzle 128 + %acc over j : f32[i: 64, d: 64] #o
      yield %next, %sum2
    }
    %r = div %o, %l : f32[i: 64, d: 64] #o
    %h = cast %r : f16[i: 64, d: 64] #o
    st.global O[i, d], %h vec 2
  }
}
; CHECK: chained__chained(
; CHECK: u32 q[16];
; CHECK: ldmatrix_x4(&q[
; CHECK: for (int t = 0; t < 3; ++t) {
; CHECK: cp_async_wait<0>();
; CHECK-NEXT: __syncthreads();
; CHECK: mma_m16n8k16_f16(&s[{{.*}}], &q[{{.*}}], b[0]);
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 1)
; CHECK: __shfl_xor_sync(0xffffffffu, {{.*}}, 2)
; CHECK-NOT: __shfl
; CHECK: u32 p[8];
; CHECK: p[r] = pack_f16(
; CHECK: ldmatrix_x4_trans(b[0]
; CHECK: mma_m16n8k16_f16(&acc[{{.*}}], &p[{{.*}}], b[0]);

; CASE: masked copies read nothing and write zeros
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module masked target sm_80 {
  input X: f16[77, 64]
  output Y: f16[77, 64]
  kernel y grid 2 warps 4 min_blocks 1 {
    let r0 = block * 64
    layout #x = reg(j:8x1, i:4x16) lane(j:8x8, i:4x1) warp(i:4x4)
    smem s : f16[i: 64, j: 64] stages 1 swizzle 128 pad 0 @ 0
    cp.async s[0] swizzle 128, X[r0 + i, j] where r0 + i < 77 vec 8 threads #x
    cp.commit
    cp.wait 0
    barrier
    %y = ld.shared s[0] swizzle 128 vec 8 : f16[i: 64, j: 64] #x
    st.global Y[r0 + i, j], %y where r0 + i < 77 vec 8
  }
}
; CHECK: "r"(active ? 16 : 0)
; CHECK: cp_async_16(shared + {{.*}}, X + {{.*}}, {{.*}} < 77);

; CASE: alternatives of a mask are no branches
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module alternatives target sm_80 {
  input X: f16[77, 64]
  output Y: f16[77, 64]
  kernel y grid 2 warps 4 min_blocks 1 {
    let r0 = block * 64
    layout #x = reg(j:8x1, i:4x16) lane(j:8x8, i:4x1) warp(i:4x4)
    smem s : f16[i: 64, j: 64] stages 1 swizzle 128 pad 0 @ 0
    cp.async s[0] swizzle 128, X[r0 + i, j] where r0 + i < 77 and (block < 1 or r0 + i < 70) vec 8 threads #x
    cp.commit
    cp.wait 0
    barrier
    %y = ld.shared s[0] swizzle 128 vec 8 : f16[i: 64, j: 64] #x
    st.global Y[r0 + i, j], %y where r0 + i < 77 vec 8
  }
}
; CHECK: cp_async_16(shared + {{.*}}, X + {{.*}}, {{.*}} < 77 & (block < 1 | {{.*}} < 70));

; CASE: a copy that several threads could make is made once
; Two copies in flight to the same bytes have no order.  The lanes and the warps after the first ones only wait.
; ARCH: sm_80
; PRINT: cuda
module once target sm_80 {
  input X: f32[8, 8]
  output Y: f32[8, 8]
  kernel y grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:4x1) lane(j:2x4, i:8x1, *:2) warp(*:4)
    smem s : f32[i: 8, j: 8] stages 1 swizzle 0 pad 16 @ 0
    cp.async s[0], X[i, j] where i < 7 vec 4 threads #x
    cp.commit
    cp.wait 0
    barrier
    %y = ld.shared s[0] vec 4 : f32[i: 8, j: 8] #x
    st.global Y[i, j], %y vec 4
  }
}
; CHECK: if (lane / 16 == 0 && warp == 0) {
; CHECK-NEXT: const int at_i =
; CHECK-NEXT: cp_async_16(shared + s_at + {{.*}} < 7);
; CHECK-NEXT: }
; CHECK-NEXT: cp_async_commit();
; CHECK-NEXT: cp_async_wait<0>();
; CHECK-NEXT: __syncthreads();

; CASE: a copy of several vectors that two of four warps could make
; The condition is one test in front of the loop over the registers.
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module once target sm_80 {
  input X: f32[32, 16]
  output Y: f32[32, 16]
  kernel y grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:4x1, i:2x16) lane(j:4x4, i:8x1) warp(*:2, i:2x8)
    smem s : f32[i: 32, j: 16] stages 1 swizzle 0 pad 16 @ 0
    cp.async s[0], X[i, j] vec 4 threads #x
    cp.commit
    cp.wait 0
    barrier
    %y = ld.shared s[0] vec 4 : f32[i: 32, j: 16] #x
    st.global Y[i, j], %y vec 4
  }
}
; CHECK: if (warp % 2 == 0) {
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int r = 0; r < 8; r += 4) {
; CHECK-NEXT: cp_async_16(
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: cp_async_commit();

; CASE: of the warps that hold a tile the first one stores it to shared memory
; Lanes of a warp store equal values with one instruction.  Where one thread has an element, there is no condition.
; ARCH: sm_80
; PRINT: cuda
module once target sm_80 {
  input X: f32[8]
  input Z: f32[64]
  output Y: f32[8]
  output W: f32[64]
  kernel y grid 1 warps 2 min_blocks 1 {
    layout #x = reg() lane(i:8x1, *:4) warp(*:2)
    layout #z = reg() lane(j:32x1) warp(j:2x32)
    smem s : f32[i: 8] stages 1 swizzle 0 pad 16 @ 0
    smem u : f32[j: 64] stages 1 swizzle 0 pad 16 @ 64
    %x = ld.global X[i] vec 1 : f32[i: 8] #x
    %z = ld.global Z[j] vec 1 : f32[j: 64] #z
    st.shared s[0], %x vec 1
    st.shared u[0], %z vec 1
    barrier
    %y = ld.shared s[0] vec 1 : f32[i: 8] #x
    %w = ld.shared u[0] vec 1 : f32[j: 64] #z
    st.global Y[i], %y vec 1
    st.global W[j], %w vec 1
  }
}
; CHECK: if (warp == 0) {
; CHECK-NEXT: *reinterpret_cast<u32*>(smem + s_at + {{.*}} = __float_as_uint(x[0]);
; CHECK-NEXT: }
; CHECK-NEXT: *reinterpret_cast<u32*>(smem + u_at + {{.*}} = __float_as_uint(z[0]);
; CHECK-NEXT: __syncthreads();

; CASE: positions under layouts with equal registers and other lanes
; One loop over the registers has the positions of one layout: a run of operations ends where an index has others.
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module places target sm_80 {
  output A: i32[8]
  output B: i32[4]
  output C: i32[8]
  output D: i32[8, 4]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #one = reg() lane(*:32) warp()
    layout #i = reg() lane(i:8x1, *:4) warp()
    layout #ij = reg() lane(i:8x1, j:4x1) warp()
    layout #j = reg() lane(*:8, j:4x1) warp()
    layout #k = reg() lane(*:4, i:8x1) warp()
    %n = index 7 : i32 #one
    %a = index i + 2 : i32[i: 8] #i
    %d = index i * 5 : i32[i: 8, j: 4] #ij
    %b = index j + 3 : i32[j: 4] #j
    %e = add %d, %b : i32[i: 8, j: 4] #ij
    %c = index i + 4 : i32[i: 8] #k
    %f = add %a, %n : i32[i: 8] #i
    st.global A[i], %f vec 1
    st.global B[j], %b vec 1
    st.global C[i], %c vec 1
    st.global D[i, j], %e vec 1
  }
}
; CHECK: const int i_i = (lane % 8);
; CHECK-NEXT: const int j_j = (lane / 8);
; CHECK-NEXT: const int k_i = (lane / 4);
; CHECK: const int at_i = i_i;
; CHECK-NEXT: n_[0] = 7;
; CHECK-NEXT: a[0] = at_i + 2;
; CHECK-NEXT: d[0] = at_i * 5;
; CHECK: const int at_j = j_j;
; CHECK-NEXT: b[0] = at_j + 3;
; CHECK: const int at_i = k_i;
; CHECK-NEXT: c[0] = at_i + 4;

; CASE: terms of one thread that meet in one element are combined before memory is written
; ARCH: sm_90a
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module sums target sm_90a {
  input X: i32[128, 32]
  input K: i32[128]
  temp F: i32[9, 32] = 0
  temp H: i32[9] = 0
  kernel fill grid 1 warps 1 min_blocks 1 {
    layout #f = reg(e:9x1) lane(d:32x1) warp()
    layout #h = reg(e:9x1) lane(*:32) warp()
    %f = const 0 : i32[e: 9, d: 32] #f
    %h = const 0 : i32[e: 9] #h
    st.global F[e, d], %f vec 1
    st.global H[e], %h vec 1
  }
  kernel rows grid 8 warps 1 min_blocks 1 {
    layout #x = reg(t:16x1) lane(d:32x1) warp()
    layout #t = reg(t:16x1) lane(*:32) warp()
    %x = ld.global X[block * 16 + t, d] vec 1 : i32[t: 16, d: 32] #x
    %k = ld.global K[block * 16 + t] vec 4 : i32[t: 16] #t
    st.global F[%k, d], %x where %k >= 0 and %k < 9 vec 1 atomic sum
  }
  kernel counts grid 1 warps 1 min_blocks 1 {
    layout #c = reg(t:4x1) lane(t:32x4) warp()
    %k = ld.global K[t] vec 4 : i32[t: 128] #c
    %one = const 1 : i32[t: 128] #c
    st.global H[%k], %one where %k >= 0 and %k < 9 vec 1 atomic sum
  }
}
; CHECK: sums__rows(
; CHECK: u32 waiting = 0, *place = nullptr;
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int term = 0; term < 16; ++term) {
; CHECK-NEXT: extend_add(place, waiting, {{k_?}}[term] >= 0 && {{k_?}}[term] < 9, reinterpret_cast<u32*>(F + {{.*}}), (u32)x[term]);
; CHECK-NEXT: }
; CHECK-NEXT: put_add(place != nullptr, place, waiting);
; CHECK: sums__counts(
; CHECK: extend_add(
; CHECK-NEXT: }
; CHECK-NEXT: combine_add(place != nullptr, place, waiting);

; CASE: a byte that two registers share fills half of a packed register
; PRINT: cuda
module t target sm_80 {
  input W: u8[4, 17]
  output Y: u8[4, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #t = reg(j:2x1, k:2x2) lane(j:16x2, k:2x1) warp()
    %w = ld.global W[k, j // 2] vec 2 repeat 2 : u8[k: 4, j: 32] #t
    st.global Y[k, j], %w vec 2
  }
}
; CHECK: u32 w[1];
; CHECK: const unsigned char word =
; CHECK: w[0] = ((u32)word & 0xff) | ((u32)word & 0xff) << 8;
; CHECK: const unsigned char word =
; CHECK: w[0] |= ((u32)word & 0xff) << 16 | ((u32)word & 0xff) << 24;
; CHECK-NOT: word >> 8

; CASE: a block over two blocks of a cluster
; ARCH: sm_90a
; PRINT: cuda
module apart target sm_90a {
  input X: f32[3, 256]
  output Y: f32[3, 256]
  output Z: f32[3, 256]
  kernel z grid 3 warps 8 min_blocks 1 spread 2 {
    let r = block
    layout #i = reg() lane(i:32x1) warp(i:8x32)
    %x = ld.global X[r, i] vec 1 : f32[i: 256] #i
    st.global Y[r, i], %x vec 1
    barrier
    %y = ld.global Y[r, 255 - i] vec 1 : f32[i: 256] #i
    st.global Z[r, i], %y vec 1
  }
}
; CHECK: __launch_bounds__(128, 1) __cluster_dims__(2, 1, 1)
; CHECK: const int warp = threadIdx.x / 32 + blockIdx.x % 2 * 4;
; CHECK: const int block = blockIdx.x / 2;
; CHECK: cluster_arrive();
; CHECK-NEXT: cluster_wait();
; CHECK: apart__z<<<6, 128, 0, stream>>>

; CASE: a conversion to 8 bits rounds each element, and integers become no floats
; PRINT: cuda
module narrow target sm_90a {
  input X: f32[32, 8]
  input N: i32[32, 8]
  output Y: f8e4m3[32, 8]
  output M: u8[32, 8]
  output S: f32[32, 8]
  kernel Y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:8x1) lane(i:32x1) warp(*:1)
    %x = ld.global X[i, j] vec 4 : f32[i: 32, j: 8] #x
    %y = cast %x : f8e4m3[i: 32, j: 8] #x
    st.global Y[i, j], %y vec 8
    %s = cast %y : f32[i: 32, j: 8] #x
    st.global S[i, j], %s vec 4
    %n = ld.global N[i, j] vec 4 : i32[i: 32, j: 8] #x
    %m = cast %n : u8[i: 32, j: 8] #x
    st.global M[i, j], %m vec 8
  }
}
; CHECK: pack_bytes(f32_to_e4m3(x[
; CHECK: pack_bytes((unsigned char){{n[_a-z]*}}[

; CASE: a packed constant and a packed scalar argument are spelled by their bits
; Each register has two halves. The constant is 1, whose bits are 3c00.
; ARCH: sm_80
; PRINT: cuda
module filled target sm_80 {
  output Y: f16[64, 64]
  output Z: f16[64, 64]
  param one: f16
  kernel y grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:8x1, i:4x16) lane(j:8x8, i:4x1) warp(i:4x4)
    %c = const 1.0 : f16[i: 64, j: 64] #x
    st.global Y[i, j], %c vec 8
    %p = param one : f16[i: 64, j: 64] #x
    st.global Z[i, j], %p vec 8
  }
}
; CHECK: = 0x3c003c00u;
; CHECK: = (u32)one * 0x10001u;
