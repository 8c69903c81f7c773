; The CUDA text of kernels with TMA copies, mbarriers and warp roles.

; CASE: warp roles
; C = A . B in tiles of 128 x 128: a producer and two consumers with 64 rows each, pipelines of two stages.
; RUN: request-registers
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module mm target sm_90a {
  input A: f16[512, 256]
  input B: f16[256, 512]
  output C: f16[512, 512]
  kernel C grid 16 warps 12 min_blocks 1 {
    layout #acc = reg(j:2x1, i:2x8, j:16x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    smem s_a : f16[i: 64, k: 64] stages 4 swizzle 128 pad 0 @ 0
    smem s_b : f16[k: 64, j: 128] stages 2 swizzle 128 pad 0 @ 32768
    smem s_c : f16[i: 64, j: 128] stages 2 swizzle 128 pad 0 @ 65536
    mbar full stages 2 arrivals 1 @ 98304
    mbar empty stages 2 arrivals 8 @ 98320
    pipeline r stages 2
    mbar.init
    barrier
    roles {
      role producer warps 0..4 registers 24 single {
        let i0 = block // 4
        let j0 = block % 4
        for k0 in 0..4 carry() {
          mbar.wait empty[r_stage] parity 1 - r_phase
          mbar.expect full[r_stage] 32768
          tma.load s_a[r_stage * 2] swizzle 128, A[i0 * 128 + i, k0 * 64 + k] mbar full[r_stage]
          tma.load s_a[r_stage * 2 + 1] swizzle 128, A[i0 * 128 + 64 + i, k0 * 64 + k] mbar full[r_stage]
          tma.load s_b[r_stage] swizzle 128, B[k0 * 64 + k, j0 * 128 + j] mbar full[r_stage]
          advance r
          yield
        }
      }
      role consumers warps 4..12 registers 240 consumers 2 {
        let i0 = block // 4
        let j0 = block % 4
        %zero = const 0.0 : f32[i: 64, j: 128] #acc
        %c = for k0 in 0..4 carry(%x = %zero) {
          mbar.wait full[r_stage] parity r_phase
          wg.fence
          %y = mma wgmma.f16 smem s_a[r_stage * 2 + consumer] swizzle 128, smem s_b[r_stage] swizzle 128 + %x over k async : f32[i: 64, j: 128] #acc
          wg.commit
          wg.wait 0 %y
          mbar.arrive empty[r_stage] each warp
          advance r
          yield %y
        }
        %h = cast %c : f16[i: 64, j: 128] #acc
        st.matrix s_c[consumer] swizzle 128, %h
        fence.proxy
        barrier (consumer + 1), 128
        tma.store s_c[consumer] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 128 + j]
        tma.commit
        tma.wait 0 read
      }
    }
  }
}
; CHECK: struct __align__(64) TensorMap
; CHECK: void __launch_bounds__(384, 1)
; CHECK-NEXT: const __grid_constant__ TensorMap map_A_64_64, {{.*}} TensorMap map_B_64_64, {{.*}} map_C_64_64) {
; CHECK: const int warp = threadIdx.x / 32 % 4;
; CHECK: if (threadIdx.x == 0) {
; CHECK-NEXT: mbarrier_init(shared + full_at, 1);
; CHECK-NEXT: mbarrier_init(shared + full_at + 8, 1);
; CHECK-NEXT: mbarrier_init(shared + empty_at, 8);
; CHECK-NEXT: mbarrier_init(shared + empty_at + 8, 8);
; CHECK-NEXT: fence_mbarrier_init();
; CHECK-NEXT: }
; CHECK-NEXT: __syncthreads();
; CHECK: // producer
; CHECK-NEXT: if (threadIdx.x < 128) {
; CHECK-NEXT: registers_less<24>();
; CHECK-NEXT: if (threadIdx.x == 0) {
; CHECK-NEXT: int r_stage = 0;
; CHECK-NEXT: u32 r_phase = 0;
; CHECK: for (int k0 = 0; k0 < 4; ++k0) {
; CHECK-NEXT: mbarrier_wait(shared + empty_at + r_stage * 8, 1 - r_phase);
; CHECK-NEXT: mbarrier_expect(shared + full_at + r_stage * 8, 32768);
; CHECK-NEXT: tma_load_2d(shared + s_a_at + r_stage * 2 * s_a_bytes, &map_A_64_64, {{.*}}, k0 * 64, i0 * 128);
; CHECK-NEXT: tma_load_2d(shared + s_a_at + (r_stage * 2 + 1) * s_a_bytes, &map_A_64_64, {{.*}}, k0 * 64, i0 * 128 + 64);
; CHECK-NEXT: tma_load_2d(shared + s_b_at + r_stage * s_b_bytes, &map_B_64_64, {{.*}}, j0 * 128, k0 * 64);
; CHECK-NEXT: tma_load_2d(shared + s_b_at + r_stage * s_b_bytes + 8192, &map_B_64_64, {{.*}}, j0 * 128 + 64, k0 * 64);
; CHECK-NEXT: if (++r_stage == 2) {
; CHECK-NEXT: r_stage = 0;
; CHECK-NEXT: r_phase ^= 1;
; CHECK: // consumers
; CHECK-NEXT: else {
; CHECK-NEXT: registers_more<240>();
; CHECK-NEXT: const int consumer = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) - 1;
; CHECK: mbarrier_wait(shared + full_at + {{.*}} * 8, {{.*}});
; CHECK-NEXT: wgmma_fence();
; CHECK: wgmma_descriptor<16, 1024, 128>(shared + s_a_at + ({{.*}} * 2 + consumer) * s_a_bytes);
; CHECK: wgmma_descriptor<8192, 1024, 128>(shared + s_b_at + {{.*}} * s_b_bytes);
; CHECK-NEXT: wgmma_m64n128_f16_st(&x[0], desc_a, desc_b, 1);
; CHECK-NEXT: wgmma_m64n128_f16_st(&x[0], desc_a + 2, desc_b + 128, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(x);
; CHECK-NEXT: __syncwarp();
; CHECK-NEXT: if (lane == 0) {
; CHECK-NEXT: mbarrier_arrive(
; CHECK: const u32 stage = shared + s_c_at + consumer * s_c_bytes;
; CHECK-NEXT: const u32 lane_row = swizzle_128<64>(warp * 16 + lane % 16, lane / 16 * 16);
; CHECK: for (int n = 0; n < 16; n += 2) {
; CHECK-NEXT: stmatrix_x4(stage + (lane_row ^ (n * 16) % 128) + (n * 16) / 128 * 8192, &h[n * 2]);
; CHECK: fence_proxy();
; CHECK-NEXT: named_barrier(consumer + 1, 128);
; CHECK-NEXT: if (threadIdx.x % 128 == 0) {
; CHECK-NEXT: tma_store_2d(&map_C_64_64, shared + s_c_at + consumer * s_c_bytes, {{.*}} * 128 + consumer * 64);
; CHECK-NEXT: tma_store_2d(&map_C_64_64, shared + s_c_at + consumer * s_c_bytes + 8192, {{.*}} * 128 + 64, {{.*}});
; CHECK: tma_commit();
; CHECK: tma_wait_read<0>();
; CHECK: #ifndef __CUDACC_RTC__
; CHECK: const cuuint64_t sizes[] = {512, 256};
; CHECK-NEXT: const cuuint64_t strides[] = {1024};
; CHECK-NEXT: const cuuint32_t box[] = {64, 64};
; CHECK-NEXT: encode_map(&plan->map_B_64_64, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, plan->B,
; CHECK-NEXT: sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
; CHECK: mm__C<<<16, 384, 98336, stream>>>({{.*}}, plan.map_A_64_64, plan.map_B_64_64, plan.map_C_64_64);

; CASE: static tiles
; Two axes without a tile axis are one axis of the map; rows of 64 elements are one slab without a swizzle.
; RUN: request-registers
; PRINT: cuda
module copy target sm_90a {
  input X: f16[5, 4, 64, 64]
  output Y: f16[5, 4, 64, 64]
  kernel Y grid 3 warps 8 min_blocks 1 {
    smem s : f16[i: 64, j: 64] stages 1 swizzle 0 pad 0 @ 0
    mbar full stages 1 arrivals 1 @ 8448
    mbar empty stages 1 arrivals 4 @ 8456
    pipeline r stages 1
    mbar.init
    barrier
    roles {
      role load warps 0..4 registers 40 single {
        tile.loop v, q in 20 static {
          mbar.wait empty[0] parity 1 - r_phase
          mbar.expect full[0] 8192
          tma.load s[0], X[v // 4, v % 4, i, j] mbar full[0]
          advance r
        }
      }
      role store warps 4..8 {
        tile.loop v, q in 20 static {
          mbar.wait full[0] parity r_phase
          tma.store s[0], Y[v // 4, v % 4, i, j]
          tma.commit
          tma.wait 0
          barrier 1, 128
          mbar.arrive empty[0] each warp
          advance r
        }
      }
    }
  }
}
; CHECK: TensorMap map_X_1_64_64_swizzle_0_of_20_64_64
; CHECK: for (int q = 0, v = block; v < 20; ++q, v += gridDim.x) {
; CHECK: tma_load_3d(shared + s_at, &map_X_1_64_64_swizzle_0_of_20_64_64, shared + full_at, 0, 0, {{.*v.*}});
; CHECK: r_phase ^= 1;
; CHECK: for (int q_2 = 0, v_2 = block; v_2 < 20; ++q_2, v_2 += gridDim.x) {
; CHECK: tma_store_3d(&map_Y_1_64_64_swizzle_0_of_20_64_64, shared + s_at, 0, 0, {{.*v_2.*}});
; CHECK: tma_wait<0>();
; CHECK: const cuuint64_t sizes[] = {64, 64, 20};
; CHECK-NEXT: const cuuint64_t strides[] = {128, 8192};
; CHECK-NEXT: const cuuint32_t box[] = {64, 64, 1};
; CHECK: CU_TENSOR_MAP_SWIZZLE_NONE

; CASE: snake tiles
; RUN: request-registers
; PRINT: cuda
module copy target sm_90a {
  input X: f16[5, 4, 64, 64]
  output Y: f16[5, 4, 64, 64]
  kernel Y grid 3 warps 8 min_blocks 1 {
    smem s : f16[i: 64, j: 64] stages 1 swizzle 0 pad 0 @ 0
    mbar full stages 1 arrivals 1 @ 8448
    mbar empty stages 1 arrivals 4 @ 8456
    pipeline r stages 1
    mbar.init
    barrier
    roles {
      role load warps 0..4 registers 40 single {
        tile.loop v, q in 20 snake {
          mbar.wait empty[0] parity 1 - r_phase
          mbar.expect full[0] 8192
          tma.load s[0], X[v // 4, v % 4, i, j] mbar full[0]
          advance r
        }
      }
      role store warps 4..8 {
        tile.loop v, q in 20 snake {
          mbar.wait full[0] parity r_phase
          tma.store s[0], Y[v // 4, v % 4, i, j]
          tma.commit
          tma.wait 0
          barrier 1, 128
          mbar.arrive empty[0] each warp
          advance r
        }
      }
    }
  }
}
; CHECK: for (int q = 0, v = block; v < 20; ++q, v = q * {{.*}} + (q % 2 ? gridDim.x - 1 - block : block)) {
; CHECK: for (int q_2 = 0, v_2 = block; v_2 < 20; ++q_2, v_2 = q_2 * {{.*}} + (q_2 % 2 ? {{.*}} : block)) {

; CASE: dynamic tiles
; The producer takes tiles from a counter and sends them through a queue.
; RUN: request-registers
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module copy target sm_90a {
  input X: f16[5, 4, 64, 64]
  output Y: f16[5, 4, 64, 64]
  kernel Y grid 3 warps 8 min_blocks 1 {
    smem s : f16[i: 64, j: 64] stages 1 swizzle 0 pad 0 @ 0
    smem box : i32[b: 1] stages 2 swizzle 0 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 8448
    mbar empty stages 1 arrivals 4 @ 8456
    mbar tfull stages 2 arrivals 1 @ 8464
    mbar tempty stages 2 arrivals 4 @ 8480
    pipeline r stages 1
    pipeline t stages 2
    mbar.init
    barrier
    roles {
      role load warps 0..4 registers 40 single {
        tile.first next
        tile.loop v, q in 20 dynamic {
          mbar.wait tempty[t_stage] parity 1 - t_phase
          let v = next
          tile.reset v of 20
          queue.push box[t_stage], v
          mbar.arrive tfull[t_stage]
          advance t
          break if v >= 20
          mbar.wait empty[0] parity 1 - r_phase
          mbar.expect full[0] 8192
          tma.load s[0], X[v // 4, v % 4, i, j] mbar full[0]
          advance r
          tile.fetch next
        }
      }
      role store warps 4..8 {
        tile.loop v, q in 20 dynamic {
          mbar.wait tfull[t_stage] parity t_phase
          queue.pop v, box[t_stage]
          mbar.arrive tempty[t_stage] each warp
          advance t
          break if v >= 20
          mbar.wait full[0] parity r_phase
          tma.store s[0], Y[v // 4, v % 4, i, j]
          tma.commit
          tma.wait 0
          barrier 1, 128
          mbar.arrive empty[0] each warp
          advance r
        }
      }
    }
  }
}
; CHECK: copy__Y(const f16* __restrict__ X, f16* __restrict__ Y, {{.*}}, u32* tile_counter) {
; CHECK: for (int q = 0;; ++q) {
; CHECK-NEXT: mbarrier_wait(shared + tempty_at + t_stage * 8, 1 - t_phase);
; CHECK-NEXT: const int v = next;
; CHECK-NEXT: if (v == gridDim.x + 20 - 1) *tile_counter = 0;
; CHECK-NEXT: reinterpret_cast<volatile int*>(smem + box_at)[t_stage] = v;
; CHECK-NEXT: mbarrier_arrive(shared + tfull_at + t_stage * 8);
; CHECK-NEXT: if (++t_stage == 2) {
; CHECK: if (v >= 20) break;
; CHECK: mbarrier_expect(shared
; CHECK: next = gridDim.x + atomicAdd(tile_counter, 1u);
; CHECK-NEXT: }
; CHECK: for (int q_2 = 0;; ++q_2) {
; CHECK-NEXT: mbarrier_wait(shared + tfull_at + t_stage_2 * 8, t_phase_2);
; CHECK-NEXT: const int v_2 = __shfl_sync(0xffffffffu, lane == 0 ? {{.*}}(smem + box_at)[t_stage_2] : 0, 0);
; CHECK-NEXT: __syncwarp();
; CHECK-NEXT: if (lane == 0) {
; CHECK-NEXT: mbarrier_arrive(shared + tempty_at + t_stage_2 * 8);
; CHECK: if (v_2 >= 20) break;
; CHECK: plan->tile_counter = reinterpret_cast<u32*>(static_cast<char*>(workspace));
; CHECK-NEXT: cudaMemsetAsync(plan->tile_counter, 0, sizeof(u32), stream);
; CHECK: launch(const Plan& plan
; CHECK-NOT: cudaMemsetAsync
; CHECK: copy__Y<<<3, 256, {{[0-9]+}}, stream>>>({{.*}}, plan.tile_counter);
; CHECK: size_t copy_workspace(void) { return 256; }

; CASE: outstanding MMAs
; O = f16(Q . K') . V: the first result is the left operand of the second product, as fragments.
; PRINT: cuda
module chain target sm_90a {
  input Q: bf16[64, 64]
  input K: bf16[256, 64]
  input V: bf16[256, 32]
  output O: bf16[64, 32]
  kernel O grid 1 warps 4 min_blocks 1 {
    layout #s = reg(j:2x1, i:2x8, j:16x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #p = reg(j:2x1, i:2x8, j:2x8, j:8x16, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #o = reg(e:2x1, i:2x8, e:4x8, i:1x64) lane(e:4x2, i:8x1) warp(i:4x16)
    smem q : bf16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem k : bf16[j: 128, d: 64] stages 2 swizzle 128 pad 0 @ 8192
    smem v : bf16[j: 128, e: 32] stages 2 swizzle 64 pad 0 @ 40960
    smem o : bf16[i: 64, e: 32] stages 1 swizzle 64 pad 0 @ 57344
    mbar full stages 1 arrivals 1 @ 61440
    mbar.init
    barrier
    mbar.expect full[0] 57344
    tma.load q[0] swizzle 128, Q[i, d] mbar full[0]
    tma.load k[0] swizzle 128, K[j, d] mbar full[0]
    tma.load k[1] swizzle 128, K[128 + j, d] mbar full[0]
    tma.load v[0] swizzle 64, V[j, e] mbar full[0]
    tma.load v[1] swizzle 64, V[128 + j, e] mbar full[0]
    mbar.wait full[0] parity 0
    wg.fence
    %s0 = mma wgmma.bf16 smem q[0] swizzle 128, smem k[0] swizzle 128 over d async : f32[i: 64, j: 128] #s
    wg.commit
    wg.wait 0 %s0
    %h0 = cast %s0 : bf16[i: 64, j: 128] #s
    %p0 = convert %h0 : bf16[i: 64, j: 128] #p
    wg.fence
    %s1 = mma wgmma.bf16 smem q[0] swizzle 128, smem k[1] swizzle 128 over d async : f32[i: 64, j: 128] #s
    wg.commit
    wg.fence
    %o0 = mma wgmma.bf16 %p0, smem v[0] swizzle 64 over j async : f32[i: 64, e: 32] #o
    wg.commit
    wg.wait 1 %s1
    %h1 = cast %s1 : bf16[i: 64, j: 128] #s
    %p1 = convert %h1 : bf16[i: 64, j: 128] #p
    wg.fence
    %o1 = mma wgmma.bf16 %p1, smem v[1] swizzle 64 + %o0 over j async : f32[i: 64, e: 32] #o
    wg.commit
    wg.wait 0 %o1
    %r = cast %o1 : bf16[i: 64, e: 32] #o
    st.matrix o[0] swizzle 64, %r
    fence.proxy
    barrier 1, 128
    tma.store o[0] swizzle 64, O[i, e]
    tma.commit
    tma.wait 0 read
  }
}
; CHECK: wgmma_m64n128_bf16_ss{{(_zero)?}}(&s0[0], {{desc_a[_0-9]*}}, {{desc_b[_0-9]*}}{{(, 0)?}});
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(s0);
; CHECK: u32 h0[32];
; CHECK: pack_bf16(
; CHECK-NOT: p0
; CHECK: wgmma_fence();
; CHECK: wgmma_m64n128_bf16_ss{{(_zero)?}}(&s1[0],
; CHECK: wgmma_commit();
; CHECK: wgmma_m64n32_bf16_rt{{(_zero)?}}(&o0[0], &h0[0], {{desc_b[_0-9]*}}{{(, 0)?}});
; CHECK-NEXT: wgmma_m64n32_bf16_rt(&o0[0], &h0[4], {{desc_b[_0-9]*}} + 64, 1);
; CHECK: wgmma_commit();
; CHECK-NEXT: wgmma_wait<1>();
; CHECK-NEXT: fence_operand{{.*}}(s1);
; CHECK: wgmma_m64n32_bf16_rt(&o0[0], &h1[0], {{desc_b[_0-9]*}}, 1);
; CHECK: wgmma_wait<0>();
; CHECK-NEXT: fence_operand{{.*}}(o0);
; CHECK: const u32 lane_row = swizzle_64<64>(warp * 16 + lane % 16, lane / 16 * 16);
; CHECK: for (int n = 0; n < 4; n += 2) {
; CHECK-NEXT: stmatrix_x4(stage + (lane_row ^ (n * 16) % 64) + (n * 16) / 64 * 4096, &r{{[_0-9]*}}[n * 2]);
; CHECK: tma_store_2d(&map_O_64_32_swizzle_64,
; CHECK: CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
; CHECK: CU_TENSOR_MAP_SWIZZLE_64B

; CASE: 8-bit floats that threads convert
; PRINT: cuda
module eight target sm_90a {
  input X: f8e4m3[64, 64]
  output Y: f8e5m2[64, 64]
  kernel Y grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:16x1, i:2x8) lane(j:4x16, i:8x1) warp(i:4x16)
    smem s : f8e4m3[i: 64, j: 64] stages 1 swizzle 64 pad 0 @ 0
    mbar full stages 1 arrivals 1 @ 4096
    mbar.init
    barrier
    mbar.expect full[0] 4096
    tma.load s[0] swizzle 64, X[i, j] mbar full[0]
    mbar.wait full[0] parity 0
    %x = ld.shared s[0] swizzle 64 vec 16 : f8e4m3[i: 64, j: 64] #x
    %y = cast %x : f32[i: 64, j: 64] #x
    %z = add %y, %y : f32[i: 64, j: 64] #x
    st.global Y[i, j], %z vec 16
  }
}
; CHECK: cvt.rn.satfinite.e5m2x2.f32
; CHECK: fabsf(x) >= 61440.0f ? (pair & 0x80) | 0x7c : pair;
; CHECK: cvt.rn.f16x2.e4m3x2
; CHECK: eight__Y(const unsigned char* __restrict__ X, unsigned char* __restrict__ Y,
; CHECK: u32 x[8];
; CHECK: e4m3_to_f32_of(x[
; CHECK: pack_bytes(f32_to_e5m2(
; CHECK: CU_TENSOR_MAP_DATA_TYPE_UINT8

; CASE: three roles
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module t target sm_90a {
  input X: f32[64]
  output Y: f32[64]
  output Z: f32[64]
  output W: f32[64]
  kernel k grid 2 warps 12 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(*:4)
    roles {
      role first warps 0..4 {
        %x = ld.global X[block * 32 + i] vec 1 : f32[i: 32] #i
        st.global Y[block * 32 + i], %x vec 1
      }
      role second warps 4..8 {
        %z = ld.global X[block * 32 + i] vec 1 : f32[i: 32] #i
        st.global Z[block * 32 + i], %z vec 1
      }
      role third warps 8..12 {
        %w = ld.global X[block * 32 + i] vec 1 : f32[i: 32] #i
        st.global W[block * 32 + i], %w vec 1
      }
    }
  }
}
; CHECK: const int block = blockIdx.x;
; CHECK: // first
; CHECK-NEXT: if (threadIdx.x < 128) {
; CHECK: // second
; CHECK-NEXT: else if (threadIdx.x >= 128 && threadIdx.x < 256) {
; CHECK: // third
; CHECK-NEXT: else {
