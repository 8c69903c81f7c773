; Loads that elementwise work beside MMAs reads are issued an iteration before their use.

; CASE: a scale for each row of an operand that is computed
; INPUT: computed_operand.ma
; RUN: load-ahead {"price": null}
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
; CHECK: %b_first = ld.global B[k, n]
; CHECK: %s_first = ld.global S[k]
; CHECK: for t in 0..4 carry(%acc = %zero, %b_ahead = %b_first, %s_ahead = %s_first)
; CHECK-NEXT: %b_next = ld.global B[min(t + 1, 3) * 16 + k, n] vec
; CHECK-NEXT: %s_next = ld.global S[min(t + 1, 3) * 16 + k] vec
; CHECK: cast %b_ahead
; CHECK: mul %b2, %s_ahead
; CHECK: yield %next, %b_next, %s_next

; CASE: registers that do not hold all of them
; INPUT: computed_operand.ma
; RUN: load-ahead {"price": null, "rooms": [1]}
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: %b_first
; CHECK: %s_first = ld.global S[k]

; CASE: elements that the loop loads for the next iteration already
; RUN: load-ahead
; UNCHANGED
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
module product target sm_80 {
  input A: f16[64, 16]
  input B: f16[64, 16]
  input S: f32[64]
  output C: f32[16, 16]
  kernel product grid 1 warps 1 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8) lane(n:4x2, i:8x1) warp()
    layout #copy_k_i = reg(i:8x1) lane(i:2x8, k:16x1) warp()
    layout #k = reg() lane(*:2, k:16x1) warp()
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp()
    smem s_a : f16[k: 16, i: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    %s0 = ld.global S[k] vec 1 : f32[k: 16] #k
    %zero = const 0.0 : f32[i: 16, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[k, i] vec 8 threads #copy_k_i
    cp.commit
    %c, %last = for t in 0..4 carry(%acc = %zero, %s = %s0) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[t * 16 + k + 16, i] vec 8 threads #copy_k_i
      }
      cp.commit
      cp.wait 1
      barrier
      %b = const 0.5 : f32[k: 16, n: 16] #copy_k_n
      %after = ld.global S[t * 16 + k + 16] where t < 3 vec 1 : f32[k: 16] #k
      %b3 = mul %b, %s : f32[k: 16, n: 16] #copy_k_n
      %b4 = cast %b3 : f16[k: 16, n: 16] #copy_k_n
      st.shared s_b[0] swizzle 32, %b4 vec 8
      barrier
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 16, n: 16] #acc_i_n
      barrier
      yield %next, %after
    }
    st.global C[i, n], %c vec 2
  }
}

; CASE: a loop of one iteration has none ahead
; INPUT: computed_operand.ma
; EDIT: for t in 0..4 => for t in 0..1
; EDIT: if t < 3 => if t < 0
; RUN: load-ahead
; ARCH: sm_80
; UNCHANGED

; CASE: the cost model prices the loads of four iterations above their registers
; INPUT: computed_operand.ma
; RUN: load-ahead
; ARCH: sm_86
; COMPLETE: allocate-shared, synchronize
; CHECK: %b_first = ld.global B[k, n]
; CHECK: %s_first = ld.global S[k]

; CASE: registers that accumulators and the widest value fill
; INPUT: computed_operand.ma
; RUN: load-ahead {"rooms": [240]}
; ARCH: sm_80
; UNCHANGED

; CASE: scales of a left operand that consumers unpack
; INPUT: packed_weights.ma
; RUN: load-ahead {"price": null, "rooms": [4]}
; COMPLETE: allocate-shared, synchronize
; CHECK: %s_first = ld.global s[j0 * 128 + consumer * 64 + j, 0]
; CHECK: for t in 0..8 carry(%sum = %zero, %s_ahead = %s_first)
; CHECK: %s_next = ld.global s[j0 * 128 + consumer * 64 + j, min(t + 1, 7)]
; CHECK: unpack u4 %q over b into k less 8.0 times %s_ahead

; CASE: what becomes a left operand together with the result of another product
; INPUT: chained.ma
; EDIT: input V: => input u: f32[192]\n input V:
; EDIT: layout #s = => layout #j = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\n layout #s =
; EDIT: %sh = cast %s => %u = ld.global u[t * 64 + j] vec 2 : f32[j: 64] #j\n%su = add %s, %u : f32[i: 64, j: 64] #s\n%sh = cast %su
; RUN: load-ahead {"price": null}
; UNCHANGED
