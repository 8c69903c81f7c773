; Waits for copies and barriers: nothing is read before it has arrived, nothing is overwritten while it may be read.

; CASE: copies of this iteration: a wait and a barrier before the product, a barrier before the next copies
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      cp.async s_b[0] swizzle 32, B[t * 16 + k, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: for t in 0..4
; CHECK-NEXT: barrier
; CHECK-NEXT: cp.async s_a[0]
; CHECK: cp.async s_b[0]
; CHECK: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: %next = mma
; CHECK: yield
; CHECK: barrier
; CHECK-NEXT: st.shared out_C[0]
; CHECK-NEXT: barrier
; CHECK-NEXT: ld.shared out_C[0]

; CASE: a copy over an outstanding copy by the same op awaits it, without a barrier: each thread has bytes of its own
; RUN: synchronize
; ARCH: sm_80
; COMPLETE: synchronize
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    let part = block
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    for t in 0..4 carry() {
      cp.async s_a[0] swizzle 32, A[part * 32 + i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      yield
    }
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %zero over k : f32[i: 32, n: 16] #acc_i_n
    st.global C[i, n], %c vec 2
  }
}
; CHECK: for t in 0..4
; CHECK-NEXT: cp.wait 0
; CHECK-NEXT: cp.async s_a[0]
; CHECK: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: %c = mma

; CASE: copies one iteration ahead: one barrier an iteration
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[t % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: for t in 0..4
; CHECK-NEXT: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: if t < 3 {
; CHECK-NOT: barrier
; CHECK: yield
; CHECK: barrier
; CHECK-NEXT: st.shared out_C[0]
; CHECK-NEXT: barrier
; CHECK-NEXT: ld.shared out_C[0]

; CASE: a kernel with its barriers
; RUN: synchronize
; ARCH: sm_80
; UNCHANGED
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.wait 0
      barrier
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[t % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    barrier
    st.shared out_C[0], %c vec 2
    barrier
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}

; CASE: commits that change no wait are dropped, waits after a pipeline that is empty too
; RUN: synchronize
; ARCH: sm_80
; AGAIN
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.commit
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[t % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: cp.async s_a[0]
; CHECK-NEXT: cp.async s_b[0]
; CHECK-NEXT: cp.commit
; CHECK: yield
; CHECK-NOT: cp.wait
; CHECK: barrier
; CHECK-NEXT: st.shared

; CASE: the last iteration of a chain of loops copies nothing, whichever loop has it, whether there is one, and what loops are in it
; RUN: synchronize
; ARCH: sm_80
; AGAIN
module product target sm_80 {
  input A: f16[96, 64]
  input B: f16[64, 16]
  output C: f32[96, 16]
  kernel product grid 3 warps 2 min_blocks 1 {
    let part = block
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    if part * 2 < min(part * 2 + 2, 4) {
      cp.async s_a[0] swizzle 32, A[part * 32 + i, part * 32 + k] vec 8 threads #copy_i_k
      cp.async s_b[0] swizzle 32, B[part * 32 + k, n] vec 8 threads #copy_k_n
    }
    cp.commit
    %b = for t in part * 2..min(part * 2 + 1, 4) chain c0 carry(%acc = %zero) {
      if t + 2 <= min(part * 2 + 2, 4) {
        cp.async s_a[(t + 1 - part * 2) % 2] swizzle 32, A[part * 32 + i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1 - part * 2) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[(t - part * 2) % 2] swizzle 32, smem s_b[(t - part * 2) % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      %same = for again in 0..2 carry(%x = %next) {
        %y = max %x, %x : f32[i: 32, n: 16] #acc_i_n
        yield %y
      }
      yield %same
    }
    %c = for t in min(part * 2 + 1, 4)..min(part * 2 + 2, 4) chain c0 carry(%acc_1 = %b) {
      if t + 2 <= min(part * 2 + 2, 4) {
        cp.async s_a[(t + 1 - part * 2) % 2] swizzle 32, A[part * 32 + i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1 - part * 2) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next_1 = mma m16n8k16.f16 smem s_a[(t - part * 2) % 2] swizzle 32, smem s_b[(t - part * 2) % 2] swizzle 32 + %acc_1 over k : f32[i: 32, n: 16] #acc_i_n
      %same_1 = for again_1 in 0..2 carry(%x_1 = %next_1) {
        %y_1 = max %x_1, %x_1 : f32[i: 32, n: 16] #acc_i_n
        yield %y_1
      }
      yield %same_1
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[part * 32 + i, n], %c_rows vec 4
  }
}
; CHECK: yield %same_1
; CHECK-NOT: cp.wait
; CHECK: barrier
; CHECK-NEXT: st.shared

; CASE: a loop that goes on after one without iterations finds the copies that were made in front of both
; RUN: synchronize
; ARCH: sm_80
; AGAIN
; COMPLETE: synchronize
module product target sm_80 {
  input A: f16[96, 64]
  input B: f16[64, 16]
  output C: f32[96, 16]
  kernel product grid 3 warps 2 min_blocks 1 {
    let part = block
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    smem s_a : f16[i: 32, k: 16] stages 3 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 3 swizzle 32 pad 0 @ 3072
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[part * 32 + i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    cp.async s_a[1] swizzle 32, A[part * 32 + i, k + 16] vec 8 threads #copy_i_k
    cp.async s_b[1] swizzle 32, B[k + 16, n] vec 8 threads #copy_k_n
    cp.commit
    %b = for t in 0..part chain c0 carry(%acc = %zero) {
      if t < 2 {
        cp.async s_a[(t + 2) % 3] swizzle 32, A[part * 32 + i, t * 16 + k + 32] vec 8 threads #copy_i_k
        cp.async s_b[(t + 2) % 3] swizzle 32, B[t * 16 + k + 32, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 3] swizzle 32, smem s_b[t % 3] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %c = for t in part..4 chain c0 carry(%acc_1 = %b) {
      if t < 2 {
        cp.async s_a[(t + 2) % 3] swizzle 32, A[part * 32 + i, t * 16 + k + 32] vec 8 threads #copy_i_k
        cp.async s_b[(t + 2) % 3] swizzle 32, B[t * 16 + k + 32, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next_1 = mma m16n8k16.f16 smem s_a[t % 3] swizzle 32, smem s_b[t % 3] swizzle 32 + %acc_1 over k : f32[i: 32, n: 16] #acc_i_n
      yield %next_1
    }
    st.global C[part * 32 + i, n], %c vec 2
  }
}
; CHECK-COUNT-2: cp.wait 1
; CHECK-NOT: cp.wait 0

; CASE: the last iterations of a chain are those of its last loop, if that has as many as there are stages
; RUN: synchronize
; ARCH: sm_80
; COMPLETE: synchronize
module product target sm_80 {
  input A: f16[96, 64]
  input B: f16[64, 16]
  output C: f32[96, 16]
  kernel product grid 3 warps 2 min_blocks 1 {
    let part = block
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[part * 32 + i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %b = for t in 0..2 chain c0 carry(%acc = %zero) {
      cp.async s_a[(t + 1) % 2] swizzle 32, A[part * 32 + i, t * 16 + k + 16] vec 8 threads #copy_i_k
      cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[t % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %c = for t in 2..4 chain c0 carry(%acc_1 = %b) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[part * 32 + i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next_1 = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[t % 2] swizzle 32 + %acc_1 over k : f32[i: 32, n: 16] #acc_i_n
      yield %next_1
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[part * 32 + i, n], %c_rows vec 4
  }
}
; CHECK: yield %next_1
; CHECK-NOT: cp.wait
; CHECK: barrier
; CHECK-NEXT: st.shared

; CASE: a copy in the last iteration of a chain of loops is awaited
; RUN: synchronize
; ARCH: sm_80
; AGAIN
module product target sm_80 {
  input A: f16[96, 80]
  input B: f16[80, 16]
  output C: f32[96, 16]
  kernel product grid 3 warps 2 min_blocks 1 {
    let part = block
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    if part * 2 < min(part * 2 + 2, 4) {
      cp.async s_a[0] swizzle 32, A[part * 32 + i, part * 32 + k] vec 8 threads #copy_i_k
      cp.async s_b[0] swizzle 32, B[part * 32 + k, n] vec 8 threads #copy_k_n
    }
    cp.commit
    %b = for t in part * 2..min(part * 2 + 1, 4) chain c0 carry(%acc = %zero) {
      if t + 1 <= min(part * 2 + 2, 4) {
        cp.async s_a[(t + 1 - part * 2) % 2] swizzle 32, A[part * 32 + i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1 - part * 2) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[(t - part * 2) % 2] swizzle 32, smem s_b[(t - part * 2) % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %c = for t in min(part * 2 + 1, 4)..min(part * 2 + 2, 4) chain c0 carry(%acc_1 = %b) {
      if t + 1 <= min(part * 2 + 2, 4) {
        cp.async s_a[(t + 1 - part * 2) % 2] swizzle 32, A[part * 32 + i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1 - part * 2) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next_1 = mma m16n8k16.f16 smem s_a[(t - part * 2) % 2] swizzle 32, smem s_b[(t - part * 2) % 2] swizzle 32 + %acc_1 over k : f32[i: 32, n: 16] #acc_i_n
      yield %next_1
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[part * 32 + i, n], %c_rows vec 4
  }
}
; CHECK: yield %next_1
; CHECK: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: st.shared

; CASE: a kernel without shared memory
; RUN: synchronize
; ARCH: sm_80
; UNCHANGED
module copy target sm_80 {
  input X: f32[32]
  output Y: f32[32]
  kernel copy grid 1 warps 1 min_blocks 1 {
    layout #x = reg() lane(i:32x1) warp()
    %x = ld.global X[i] vec 1 : f32[i: 32] #x
    st.global Y[i], %x vec 1
  }
}

; CASE: a TMA load is the barrier between a read and the next write
; INPUT: chained.ma
; FIRST: allocate-shared
; RUN: synchronize
; UNCHANGED

; CASE: parts of a stage are apart, and a named barrier of all threads is a barrier
; RUN: synchronize
; ARCH: sm_80
; UNCHANGED
module parts target sm_80 {
  input A: f32[32, 32]
  output C: f32[32, 32]
  kernel parts grid 1 warps 2 min_blocks 1 {
    layout #half = reg(j:4x1, i:2x8) lane(j:8x4, i:4x1) warp(i:2x4)
    layout #rows = reg(i:16x2) lane(j:32x1) warp(i:2x1)
    smem s : f32[i: 32, j: 32] stages 1 swizzle 0 pad 0 @ 0
    %a = ld.global A[i, j] vec 4 : f32[i: 16, j: 32] #half
    %b = ld.global A[i + 16, j] vec 4 : f32[i: 16, j: 32] #half
    st.shared s[0] from 0, %a vec 4
    st.shared s[0] from 16, %b vec 4
    barrier 7, 64
    %c = ld.shared s[0] vec 1 : f32[i: 32, j: 32] #rows
    st.global C[i, j], %c vec 1
  }
}

; CASE: parts that overlap are not
; RUN: synchronize
; ARCH: sm_80
module parts target sm_80 {
  input A: f32[32, 32]
  output C: f32[32, 32]
  kernel parts grid 1 warps 2 min_blocks 1 {
    layout #half = reg(j:4x1, i:2x8) lane(j:8x4, i:4x1) warp(i:2x4)
    layout #rows = reg(i:16x2) lane(j:32x1) warp(i:2x1)
    smem s : f32[i: 32, j: 32] stages 1 swizzle 0 pad 0 @ 0
    %a = ld.global A[i, j] vec 4 : f32[i: 16, j: 32] #half
    st.shared s[0] from 0, %a vec 4
    st.shared s[0] from 8, %a vec 4
    st.shared s[0] from 16, %a vec 4
    %c = ld.shared s[0] vec 1 : f32[i: 32, j: 32] #rows
    st.global C[i, j], %c vec 1
  }
}
; CHECK: st.shared s[0] from 0
; CHECK-NEXT: barrier
; CHECK-NEXT: st.shared s[0] from 8
; CHECK-NEXT: barrier
; CHECK-NEXT: st.shared s[0] from 16

; CASE: pipelines of as many steps as stages: the next copies go to stages that nothing reads, and the store too
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 144]
  input B: f16[144, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 3 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 3 swizzle 32 pad 0 @ 3072
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 0 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    cp.async s_a[1] swizzle 32, A[i, k + 16] vec 8 threads #copy_i_k
    cp.async s_b[1] swizzle 32, B[k + 16, n] vec 8 threads #copy_k_n
    cp.commit
    %first = for s in 0..3 carry(%acc = %zero) {
      if s < 1 {
        cp.async s_a[(s + 2) % 3] swizzle 32, A[i, s * 16 + k + 32] vec 8 threads #copy_i_k
        cp.async s_b[(s + 2) % 3] swizzle 32, B[s * 16 + k + 32, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[s % 3] swizzle 32, smem s_b[s % 3] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %c = for r in 1..3 carry(%sum = %first) {
      cp.async s_a[0] swizzle 32, A[i, r * 48 + k] vec 8 threads #copy_i_k
      cp.async s_b[0] swizzle 32, B[r * 48 + k, n] vec 8 threads #copy_k_n
      cp.commit
      cp.async s_a[1] swizzle 32, A[i, r * 48 + k + 16] vec 8 threads #copy_i_k
      cp.async s_b[1] swizzle 32, B[r * 48 + k + 16, n] vec 8 threads #copy_k_n
      cp.commit
      %more = for s in 0..3 carry(%part = %sum) {
        if s < 1 {
          cp.async s_a[(s + 2) % 3] swizzle 32, A[i, r * 48 + s * 16 + k + 32] vec 8 threads #copy_i_k
          cp.async s_b[(s + 2) % 3] swizzle 32, B[r * 48 + s * 16 + k + 32, n] vec 8 threads #copy_k_n
        }
        cp.commit
        %new = mma m16n8k16.f16 smem s_a[s % 3] swizzle 32, smem s_b[s % 3] swizzle 32 + %part over k : f32[i: 32, n: 16] #acc_i_n
        yield %new
      }
      yield %more
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: for s in 0..3
; CHECK-NEXT: cp.wait 1
; CHECK-NEXT: barrier
; CHECK: for r in 1..3
; CHECK-NEXT: cp.async s_a[0]
; CHECK: for s in 0..3
; CHECK-NEXT: cp.wait 1
; CHECK-NEXT: barrier
; CHECK: yield %more
; CHECK-NEXT: }
; CHECK-NEXT: st.shared out_C[0]
; CHECK-NEXT: barrier

; CASE: a loop of one iteration has no iteration before it
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      %more = for u in t..t + 1 carry(%sum = %acc) {
        cp.async s_b[0] swizzle 32, B[u * 16 + k, n] vec 8 threads #copy_k_n
        cp.commit
        %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %sum over k : f32[i: 32, n: 16] #acc_i_n
        %same = for again in 0..2 carry(%x = %next) {
          %y = max %x, %x : f32[i: 32, n: 16] #acc_i_n
          yield %y
        }
        yield %same
      }
      yield %more
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: for t in 0..4
; CHECK-NEXT: barrier
; CHECK-NEXT: cp.async s_a[0]
; CHECK-NEXT: for u in t..t + 1
; CHECK-NEXT: cp.async s_b[0]
; CHECK-NEXT: cp.commit
; CHECK-NEXT: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: mma

; CASE: a loop that runs awaits its copies, whatever loops are in it
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      %more = for u in 0..2 carry(%sum = %acc) {
        cp.async s_b[0] swizzle 32, B[t * 16 + k, n] where k >= u * 8 and k < u * 8 + 8 vec 8 threads #copy_k_n
        cp.commit
        %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %sum over k : f32[i: 32, n: 16] #acc_i_n
        %same = for again in 0..2 carry(%x = %next) {
          %y = max %x, %x : f32[i: 32, n: 16] #acc_i_n
          yield %y
        }
        yield %same
      }
      yield %more
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: for t in 0..4
; CHECK-NEXT: barrier
; CHECK-NEXT: cp.async s_a[0]
; CHECK-NEXT: for u in 0..2
; CHECK-NEXT: barrier
; CHECK-NEXT: cp.async s_b[0]
; CHECK-NEXT: cp.commit
; CHECK-NEXT: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: mma

; CASE: a loop up to the smaller one of two ends has an iteration if both leave one
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      %more = for u in t % 2 * 2..min(t % 2 * 2 + 2, 3) carry(%sum = %acc) {
        cp.async s_b[0] swizzle 32, B[u * 16 + k, n] vec 8 threads #copy_k_n
        cp.commit
        %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %sum over k : f32[i: 32, n: 16] #acc_i_n
        yield %next
      }
      yield %more
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: for t in 0..4
; CHECK-NEXT: barrier
; CHECK-NEXT: cp.async s_a[0]
; CHECK-NEXT: for u in
; CHECK-NEXT: barrier
; CHECK-NEXT: cp.async s_b[0]
; CHECK-NEXT: cp.commit
; CHECK-NEXT: cp.wait 0
; CHECK-NEXT: barrier
; CHECK-NEXT: mma
; CHECK-NOT: cp.wait

; CASE: what other blocks of a team store is awaited by all of them, shared memory by the block alone
; RUN: synchronize
module t target sm_90a {
  output H: f32[3, 64]
  temp arrivals: i32[1, 32]
  kernel k grid 2 warps 1 min_blocks 1 team 2 in arrivals {
    let part = block
    layout #one = reg() lane(*:32) warp()
    layout #i = reg() lane(i:32x1) warp()
    layout #j = reg(j:2x1) lane(j:32x2) warp()
    smem s : f32[i: 32] stages 1 swizzle 0 pad 0 @ 0
    %one = const 1.0 : f32[i: 32] #i
    for t in 0..3 carry() {
      %h = ld.global H[t - 1, j] where t > 0 vec 2 : f32[j: 64] #j
      %sum = reduce sum %h over j : f32 #one
      %x = add %one, %sum : f32[i: 32] #i
      st.shared s[0], %x vec 1
      %y = ld.shared s[0] vec 1 : f32[i: 32] #i
      st.global H[t, part * 32 + i], %y vec 1
      yield
    }
  }
}
; CHECK: for t in 0..3
; CHECK-NEXT: barrier team
; CHECK-NEXT: ld.global H
; CHECK: st.shared s
; CHECK-NEXT: {{^ *barrier$}}
; CHECK-NEXT: ld.shared s
; CHECK-NOT: barrier

; CASE: three iterations or none: no copy is outstanding after one or two
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[64, 64]
  input B: f16[64, 16]
  output C: f32[64, 16]
  kernel product grid 2 warps 2 min_blocks 1 {
    let part = block % 2 // min(1 - block // 2 * 8, 8)
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 3 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 3 swizzle 32 pad 0 @ 3072
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    if part < 1 {
      cp.async s_a[0] swizzle 32, A[part * 32 + i, k] vec 8 threads #copy_i_k
      cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    }
    cp.commit
    if part < 1 {
      cp.async s_a[1] swizzle 32, A[part * 32 + i, k + 16] vec 8 threads #copy_i_k
      cp.async s_b[1] swizzle 32, B[k + 16, n] vec 8 threads #copy_k_n
    }
    cp.commit
    %c = for t in 0..part * -3 + 3 carry(%acc = %zero) {
      if part * 3 + t < 1 {
        cp.async s_a[(t + 2) % 3] swizzle 32, A[part * 32 + i, t * 16 + k + 32] vec 8 threads #copy_i_k
        cp.async s_b[(t + 2) % 3] swizzle 32, B[t * 16 + k + 32, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 3] swizzle 32, smem s_b[t % 3] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[part * 32 + i, n], %c_rows vec 4
  }
}
; CHECK: yield %next
; CHECK-NOT: cp.wait

; CASE: a block of a launch has a size of at least 1 and a number of at least 0, so that its loop runs
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[M, 64]
  input B: f16[4096, 16]
  output C: f32[M, 16]
  param M: i32 <= 4096
  kernel product grid (M + 31) // 32 warps 2 min_blocks 1 {
    let i0 = (M + 31) // 32 - block - 1
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i0 * 32 + i, k] where i0 * 32 + i < M vec 8 threads #copy_i_k
    cp.commit
    %c = for t in 0..min((M + 15) // 16, i0 * 2 + 2) carry(%acc = %zero) {
      cp.async s_b[0] swizzle 32, B[t * 16 + k, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i0 * 32 + i, n], %c_rows where i0 * 32 + i < M vec 4
  }
}
; CHECK: cp.async s_a
; CHECK-NOT: cp.commit
; CHECK: for t in
; CHECK: cp.wait 0
; CHECK: yield
; CHECK-NOT: cp.wait

; CASE: a reader that has a wait of its own needs none at an earlier barrier
; RUN: synchronize
; ARCH: sm_80
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[16, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    let part = block
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 4096
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %sums = const 0.0 : f32[i: 32, n: 16] #n_i
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.commit
    %c = for t in 0..4 carry(%acc = %sums) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[0] swizzle 32 + %zero over k : f32[i: 32, n: 16] #acc_i_n
      st.shared out_C[0], %next vec 2
      %rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
      %sum = add %acc, %rows : f32[i: 32, n: 16] #n_i
      yield %sum
    }
    st.global C[i, n], %c vec 4
  }
}
; CHECK: for t in 0..4
; CHECK: cp.wait 1
; CHECK-NEXT: barrier
; CHECK-NEXT: mma
; CHECK-NEXT: st.shared out_C
; CHECK-NEXT: {{^ *barrier$}}
; CHECK-NEXT: ld.shared out_C
; CHECK-NOT: cp.wait

; CASE: a barrier of the block leaves what other blocks of a team have stored
; RUN: synchronize
module t target sm_90a {
  output H: f32[3, 64]
  output Z: f32[64]
  temp arrivals: i32[1, 32]
  kernel k grid 2 warps 1 min_blocks 1 team 2 in arrivals {
    let part = block
    layout #one = reg() lane(*:32) warp()
    layout #i = reg() lane(i:32x1) warp()
    layout #j = reg(j:2x1) lane(j:32x2) warp()
    smem s : f32[i: 32] stages 1 swizzle 0 pad 0 @ 0
    %one = const 1.0 : f32[i: 32] #i
    %y0 = const 0.0 : f32[i: 32] #i
    %z = for t in 0..3 carry(%y = %y0) {
      %h = ld.global H[t - 1, j] where t > 0 vec 2 : f32[j: 64] #j
      %sum = reduce sum %h over j : f32 #one
      %x = add %one, %sum : f32[i: 32] #i
      st.global H[t, part * 32 + i], %x vec 1
      st.shared s[0], %x vec 1
      %next = ld.shared s[0] vec 1 : f32[i: 32] #i
      yield %next
    }
    st.global Z[part * 32 + i], %z vec 1
  }
}
; CHECK: for t in 0..3
; CHECK-NEXT: barrier team
; CHECK-NEXT: ld.global H
; CHECK: st.shared s
; CHECK-NEXT: {{^ *barrier$}}
; CHECK-NEXT: ld.shared s

; CASE: a loop of one iteration has its barrier where it reads
; RUN: synchronize
; ARCH: sm_80
module parts target sm_80 {
  input A: f32[16, 32]
  output C: f32[16, 32]
  kernel parts grid 1 warps 2 min_blocks 1 {
    layout #half = reg(j:4x1, i:2x8) lane(j:8x4, i:4x1) warp(i:2x4)
    layout #rows = reg(i:8x2) lane(j:32x1) warp(i:2x1)
    smem s : f32[i: 16, j: 32] stages 1 swizzle 0 pad 0 @ 0
    %a = ld.global A[i, j] vec 4 : f32[i: 16, j: 32] #half
    st.shared s[0], %a vec 4
    %zero = const 0.0 : f32[i: 16, j: 32] #rows
    %sum = for t in 0..1 carry(%acc = %zero) {
      %c = ld.shared s[0] vec 1 : f32[i: 16, j: 32] #rows
      %next = add %acc, %c : f32[i: 16, j: 32] #rows
      yield %next
    }
    st.global C[i, j], %sum vec 1
  }
}
; CHECK: for t in 0..1
; CHECK-NEXT: barrier
; CHECK-NEXT: ld.shared s[0]

; CASE: a loop of two iterations has it in front, once
; RUN: synchronize
; ARCH: sm_80
module parts target sm_80 {
  input A: f32[16, 32]
  output C: f32[16, 32]
  kernel parts grid 1 warps 2 min_blocks 1 {
    layout #half = reg(j:4x1, i:2x8) lane(j:8x4, i:4x1) warp(i:2x4)
    layout #rows = reg(i:8x2) lane(j:32x1) warp(i:2x1)
    smem s : f32[i: 16, j: 32] stages 1 swizzle 0 pad 0 @ 0
    %a = ld.global A[i, j] vec 4 : f32[i: 16, j: 32] #half
    st.shared s[0], %a vec 4
    %zero = const 0.0 : f32[i: 16, j: 32] #rows
    %sum = for t in 0..2 carry(%acc = %zero) {
      %c = ld.shared s[0] vec 1 : f32[i: 16, j: 32] #rows
      %next = add %acc, %c : f32[i: 16, j: 32] #rows
      yield %next
    }
    st.global C[i, j], %sum vec 1
  }
}
; CHECK: barrier
; CHECK-NEXT: for t in 0..2
; CHECK-NEXT: ld.shared s[0]
; CHECK-NOT: barrier
