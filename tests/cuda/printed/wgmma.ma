; The CUDA text of products of warpgroups, by type, shape and layout of the operands.
; K-major operands step 32 bytes a k-step, MN-major ones whole rows.

; CASE: both k-major
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 64]
  output C: f32[64, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[j: 64, k: 64] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.init
    barrier
    mbar.expect full[0] 16384
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_a = wgmma_descriptor<16, 1024, 128>(shared + s_a_at);
; CHECK-NEXT: desc_b = wgmma_descriptor<16, 1024, 128>(shared + s_b_at);
; CHECK: wgmma_m64n64_f16_ss{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_f16_ss(&c[0], desc_a + 2, desc_b + 2, 1);
; CHECK-NEXT: wgmma_m64n64_f16_ss(&c[0], desc_a + 4, desc_b + 4, 1);
; CHECK-NEXT: wgmma_m64n64_f16_ss(&c[0], desc_a + 6, desc_b + 6, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: two slabs deep
; The second slab of A is 64 rows of 128 bytes away, that of B 32 rows.
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 128]
  input B: f16[32, 128]
  output C: f32[64, 32]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:4x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:8x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 128] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[j: 32, k: 128] stages 1 swizzle 128 pad 0 @ 16384
    mbar full stages 1 arrivals 1 @ 24576
    mbar.init
    barrier
    mbar.expect full[0] 24576
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 32] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b = wgmma_descriptor<16, 1024, 128>(shared + s_b_at);
; CHECK: wgmma_m64n32_f16_ss(&c[0], desc_a + 6, desc_b + 6, 1);
; CHECK-NEXT: wgmma_m64n32_f16_ss(&c[0], desc_a + 512, desc_b + 256, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: slabs of 64 bytes
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 64]
  output C: f32[64, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 64] stages 1 swizzle 64 pad 0 @ 0
    smem s_b : f16[j: 64, k: 64] stages 1 swizzle 64 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.init
    barrier
    mbar.expect full[0] 16384
    tma.load s_b[0] swizzle 64, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 64, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 64, smem s_b[0] swizzle 64 over k : f32[i: 64, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_a = wgmma_descriptor<16, 512, 64>(shared + s_a_at);
; CHECK-NEXT: desc_b = wgmma_descriptor<16, 512, 64>(shared + s_b_at);
; CHECK: wgmma_m64n64_f16_ss(&c[0], desc_a + 2, desc_b + 2, 1);
; CHECK-NEXT: wgmma_m64n64_f16_ss(&c[0], desc_a + 256, desc_b + 256, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: slabs of 32 bytes
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: bf16[64, 64]
  input B: bf16[64, 64]
  output C: f32[64, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : bf16[i: 64, k: 64] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : bf16[j: 64, k: 64] stages 1 swizzle 32 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.init
    barrier
    mbar.expect full[0] 16384
    tma.load s_b[0] swizzle 32, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 32, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.bf16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 over k : f32[i: 64, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_a = wgmma_descriptor<16, 256, 32>(shared + s_a_at);
; CHECK-NEXT: desc_b = wgmma_descriptor<16, 256, 32>(shared + s_b_at);
; CHECK: wgmma_m64n64_bf16_ss{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_bf16_ss(&c[0], desc_a + 128, desc_b + 128, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: B has contiguous columns
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 128]
  output C: f32[64, 128]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:16x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[k: 64, j: 128] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 24576
    mbar.init
    barrier
    mbar.expect full[0] 24576
    tma.load s_b[0] swizzle 128, B[k, j] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 128] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b = wgmma_descriptor<8192, 1024, 128>(shared + s_b_at);
; CHECK: wgmma_m64n128_f16_st{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n128_f16_st(&c[0], desc_a + 2, desc_b + 128, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: B has contiguous columns in slabs of 64 bytes
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 32]
  output C: f32[64, 32]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:4x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[k: 64, j: 32] stages 1 swizzle 64 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 12288
    mbar.init
    barrier
    mbar.expect full[0] 12288
    tma.load s_b[0] swizzle 64, B[k, j] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 64 over k : f32[i: 64, j: 32] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b = wgmma_descriptor<4096, 512, 64>(shared + s_b_at);
; CHECK: wgmma_m64n32_f16_st{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n32_f16_st(&c[0], desc_a + 2, desc_b + 64, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: A has contiguous rows, B contiguous columns
; The second block of 64 rows is the next slab.
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 128]
  input B: f16[64, 64]
  output C: f32[128, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:2x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:2x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[k: 64, i: 128] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[k: 64, j: 64] stages 1 swizzle 128 pad 0 @ 16384
    mbar full stages 1 arrivals 1 @ 24576
    mbar.init
    barrier
    mbar.expect full[0] 24576
    tma.load s_b[0] swizzle 128, B[k, j] mbar full[0]
    tma.load s_a[0] swizzle 128, A[k, i] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 128, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_a = wgmma_descriptor<8192, 1024, 128>(shared + s_a_at);
; CHECK: wgmma_m64n64_f16_tt{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_f16_tt(&c[0], desc_a + 128, desc_b + 128, 1);
; CHECK: wgmma_m64n64_f16_tt{{(_zero)?}}(&c[32], desc_a + 512, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_f16_tt(&c[32], desc_a + 640, desc_b + 128, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: 128 rows
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[128, 64]
  input B: f16[64, 64]
  output C: f32[128, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:2x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:2x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 128, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[j: 64, k: 64] stages 1 swizzle 128 pad 0 @ 16384
    mbar full stages 1 arrivals 1 @ 24576
    mbar.init
    barrier
    mbar.expect full[0] 24576
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 128, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n64_f16_ss(&c[0], desc_a + 6, desc_b + 6, 1);
; CHECK-NEXT: wgmma_m64n64_f16_ss{{(_zero)?}}(&c[32], desc_a + 512, desc_b{{(, 0)?}});
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: more columns, in whole slabs
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 320]
  output C: f32[64, 320]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:40x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[k: 64, j: 320] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 49152
    mbar.init
    barrier
    mbar.expect full[0] 49152
    tma.load s_b[0] swizzle 128, B[k, j] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 320] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n192_f16_st{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK: wgmma_m64n128_f16_st{{(_zero)?}}(&c[96], desc_a, desc_b + 1536{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n128_f16_st(&c[96], desc_a + 2, desc_b + 1664, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: from registers
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f16[128, 64]
  input B: f16[64, 64]
  output C: f32[128, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:2x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:2x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 128, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f16[k: 64, j: 64] stages 1 swizzle 128 pad 0 @ 16384
    mbar full stages 1 arrivals 1 @ 24576
    mbar.init
    barrier
    mbar.expect full[0] 8192
    tma.load s_b[0] swizzle 128, B[k, j] mbar full[0]
    %a = ld.global A[i, k] vec 2 : f16[i: 128, k: 64] #a
    mbar.wait full[0] parity 0
    %c = mma wgmma.f16 %a, smem s_b[0] swizzle 128 over k : f32[i: 128, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: u32 a[32];
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK-NOT: desc_a
; CHECK: desc_b
; CHECK: wgmma_m64n64_f16_rt{{(_zero)?}}(&c[0], &a[0], desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_f16_rt(&c[0], &a[4], desc_b + 128, 1);
; CHECK: wgmma_m64n64_f16_rt{{(_zero)?}}(&c[32], &a[16], desc_b{{(, 0)?}});
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: bf16
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: bf16[64, 64]
  input B: bf16[64, 64]
  output C: f32[64, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:4x16, i:1x64) lane(k:4x2, i:8x1) warp(i:4x16)
    smem s_a : bf16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : bf16[k: 64, j: 64] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.init
    barrier
    mbar.expect full[0] 16384
    tma.load s_b[0] swizzle 128, B[k, j] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.bf16 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
; CHECK: p, 1, 1, 0, 1; }
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n64_bf16_st{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: tf32
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: tf32[64, 32]
  input B: tf32[24, 32]
  output C: f32[64, 24]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:3x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:1x1, i:2x8, k:2x4, k:4x8, i:1x64) lane(k:4x1, i:8x1) warp(i:4x16)
    smem s_a : tf32[i: 64, k: 32] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : tf32[j: 24, k: 32] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 11264
    mbar.init
    barrier
    mbar.expect full[0] 11264
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.tf32 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 24] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32
; CHECK: p, 1, 1; }
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n24_tf32_ss{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n24_tf32_ss(&c[0], desc_a + 2, desc_b + 2, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: tf32 from registers
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: tf32[64, 32]
  input B: tf32[64, 32]
  output C: f32[64, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:1x1, i:2x8, k:2x4, k:4x8, i:1x64) lane(k:4x1, i:8x1) warp(i:4x16)
    smem s_a : tf32[i: 64, k: 32] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : tf32[j: 64, k: 32] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.init
    barrier
    mbar.expect full[0] 8192
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    %a = ld.global A[i, k] vec 1 : tf32[i: 64, k: 32] #a
    mbar.wait full[0] parity 0
    %c = mma wgmma.tf32 %a, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: "r"(__float_as_uint(a[0]))
; CHECK: float a[16];
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n64_tf32_rs{{(_zero)?}}(&c[0], &a[0], desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_tf32_rs(&c[0], &a[4], desc_b + 2, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: signed bytes
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: i8[64, 128]
  input B: i8[48, 128]
  output C: i32[64, 48]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:6x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:4x1, i:2x8, k:2x16, k:4x32, i:1x64) lane(k:4x4, i:8x1) warp(i:4x16)
    smem s_a : i8[i: 64, k: 128] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : i8[j: 48, k: 128] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 14336
    mbar.init
    barrier
    mbar.expect full[0] 14336
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.s8 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : i32[i: 64, j: 48] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: wgmma_m64n48_s8_ss(int* d, u64 a, u64 b, int add)
; CHECK: wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.s8
; CHECK: p; }
; CHECK-NOT: float
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n48_s8_ss{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n48_s8_ss(&c[0], desc_a + 2, desc_b + 2, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: unsigned bytes
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: u8[64, 64]
  input B: u8[16, 64]
  output C: i32[64, 16]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:2x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:4x1, i:2x8, k:2x16, k:2x32, i:1x64) lane(k:4x4, i:8x1) warp(i:4x16)
    smem s_a : u8[i: 64, k: 64] stages 1 swizzle 64 pad 0 @ 0
    smem s_b : u8[j: 16, k: 64] stages 1 swizzle 64 pad 0 @ 4096
    mbar full stages 1 arrivals 1 @ 5120
    mbar.init
    barrier
    mbar.expect full[0] 5120
    tma.load s_b[0] swizzle 64, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 64, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.u8 smem s_a[0] swizzle 64, smem s_b[0] swizzle 64 over k : i32[i: 64, j: 16] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n16_u8_ss{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n16_u8_ss(&c[0], desc_a + 2, desc_b + 2, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: 8-bit floats
; RUN: async-mma
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module product target sm_90a {
  input A: f8e4m3[64, 128]
  input B: f8e4m3[256, 128]
  output C: f32[64, 256]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:32x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:4x1, i:2x8, k:2x16, k:4x32, i:1x64) lane(k:4x4, i:8x1) warp(i:4x16)
    smem s_a : f8e4m3[i: 64, k: 128] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f8e4m3[j: 256, k: 128] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 40960
    mbar.init
    barrier
    mbar.expect full[0] 40960
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    tma.load s_a[0] swizzle 128, A[i, k] mbar full[0]
    mbar.wait full[0] parity 0
    %c = mma wgmma.e4m3 smem s_a[0] swizzle 128, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 256] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3
; CHECK: p, 1, 1; }
; CHECK: product__C(const unsigned char* __restrict__ A,{{.*}} TensorMap map_A_64_128) {
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n256_e4m3_ss{{(_zero)?}}(&c[0], desc_a, desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n256_e4m3_ss(&c[0], desc_a + 2, desc_b + 2, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);

; CASE: 8-bit floats from registers
; RUN: async-mma
; PRINT: cuda
module product target sm_90a {
  input A: f8e5m2[64, 128]
  input B: f8e5m2[64, 128]
  output C: f32[64, 64]
  kernel C grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(k:4x1, i:2x8, k:2x16, k:4x32, i:1x64) lane(k:4x4, i:8x1) warp(i:4x16)
    smem s_a : f8e5m2[i: 64, k: 128] stages 1 swizzle 128 pad 0 @ 0
    smem s_b : f8e5m2[j: 64, k: 128] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.init
    barrier
    mbar.expect full[0] 8192
    tma.load s_b[0] swizzle 128, B[j, k] mbar full[0]
    %a = ld.global A[i, k] vec 4 : f8e5m2[i: 64, k: 128] #a
    mbar.wait full[0] parity 0
    %c = mma wgmma.e5m2 %a, smem s_b[0] swizzle 128 over k : f32[i: 64, j: 64] #acc
    st.global C[i, j], %c vec 2
  }
}
; CHECK: u32 a[16];
; CHECK: mbarrier_wait(shared + {{\w+}}, 0);
; CHECK: wgmma_fence();
; CHECK: desc_b
; CHECK: wgmma_m64n64_e5m2_rs{{(_zero)?}}(&c[0], &a[0], desc_b{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n64_e5m2_rs(&c[0], &a[4], desc_b + 2, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(c);
