; Elementwise work on accumulators and its stores, 64 rows and some columns at a time.

; CASE: two chunks of columns
; INPUT: biased.ma
; RUN: chunk-epilogue {"store_columns": 64}
; AGAIN
; COMPLETE:
; CHECK: layout #acc = reg(j:2x1, i:2x8, j:16x8, i:1x64)
; CHECK: layout #acc_64 = reg(j:2x1, i:2x8, j:8x8, i:1x64)
; CHECK: layout #col_64 = reg(j:2x1, j:8x8)
; CHECK-NOT: ld.global bias
; CHECK: %s = ld.global scale[
; CHECK: %c0 = for
; CHECK: yield %n0
; CHECK-NOT: j: 128] #acc
; CHECK: %b_0 = ld.global bias[j0 * 128 + j] {{.*}} vec 2 volatile : f16[j: 64] #col_64
; CHECK-NEXT: %r_0 = ld.global R[{{.*}}, j0 * 128 + j] {{.*}} volatile : f16[i: 64, j: 64] #acc_64
; CHECK: %c0_0 = slice %c0 at j 0 : f32[i: 64, j: 64] #acc_64
; CHECK-NEXT: %y0_0 = mul %c0_0, %s :
; CHECK: st.global C[{{.*}}, j0 * 128 + j], %y_0 where
; CHECK-NEXT: %b_64 = ld.global bias[j0 * 128 + j + 64] where j0 * 128 + j < 64
; CHECK: %c0_64 = slice %c0 at j 64 : f32[i: 64, j: 64] #acc_64
; CHECK: st.global C[{{.*}}, j0 * 128 + j + 64], %y_64 where
; CHECK-NOT: st.global

; CASE: blocks of rows share what lies along columns
; INPUT: biased_128_rows.ma
; RUN: chunk-epilogue {"store_columns": 64}
; COMPLETE:
; CHECK: %b_0 = ld.global bias
; CHECK: %c0_0 = slice %c0 at i 0 : f32[i: 64, j: 128]
; CHECK-NEXT: %c0_0_0 = slice %c0_0 at j 0 : f32[i: 64, j: 64]
; CHECK-NEXT: %s_0 = slice %s at i 0 : f32[i: 64]
; CHECK: %w_0 = cast %b_0
; CHECK: st.global C[i0 * 256 + consumer * 128 + i, j0 * 128 + j], %y_0 where
; CHECK-NOT: ld.global bias
; CHECK: %c0_0_64 = slice %c0 at i 64
; CHECK: %y1_0_64 = add %y0_0_64, %w_0 :
; CHECK: st.global C[i0 * 256 + consumer * 128 + i + 64, j0 * 128 + j], %y_0_64 where
; CHECK: %b_64 = ld.global bias

; CASE: stores of one shape go together
; INPUT: gated.ma
; RUN: chunk-epilogue {"store_columns": 64}
; COMPLETE:
; CHECK: %c0, %c1 = for
; CHECK: %c0_0 = slice %c0 at j 0
; CHECK: %c1_0 = slice %c1 at j 0
; CHECK: st.global C[
; CHECK: %d_0 = add %h_0, %h_0
; CHECK: st.global D[
; CHECK: %c0_64 = slice %c0 at j 64
; CHECK: st.global C[
; CHECK: st.global D[
; CHECK-NOT: st.global

; CASE: what others read is sliced
; %h is also reduced over its columns, so it is whole anyhow.
; INPUT: gated.ma
; EDIT: #acc = => #row = reg(i:2x8, i:1x64) lane(*:4, i:8x1) warp(i:4x16)\nlayout #acc =
; EDIT: layout #row = reg(i:2x8, i:1x64) lane(*:4, i:8x1) warp(i:4x16)\nlayout #acc = => layout #acc =
; EDIT: %d = add %h, %h : => %t = reduce max %h over j : f32[i: 64] #row\n%d0 = add %h, %t : f32[i: 64, j: 128] #acc\n%d = add %d0, %h :
; RUN: chunk-epilogue {"store_columns": 64}
; COMPLETE:
; CHECK: slice %h at j 0
; CHECK: slice %h at j 64
; CHECK: %d0_64 = add %h_64, %t
; CHECK-NOT: slice

; CASE: loads of what the kernel writes stay
; INPUT: biased.ma
; EDIT: input bias => output bias
; EDIT: st.global C => st.global bias[0 * j + j0 * 128 + j], %w vec 2\nst.global C
; RUN: chunk-epilogue {"store_columns": 64}
; CHECK: ld.global bias
; CHECK-NOT: ld.global bias
; CHECK: %w_64 = slice %w at j 64
; CHECK-NOT: ld.global bias

; CASE: work on 16-bit values is cut as well
; INPUT: biased.ma
; EDIT: st.global C => %z = narrow %y : f16[i: 64, j: 128] #acc\nst.global C
; EDIT: j0 * 128 + j], %y where => j0 * 128 + j], %z where
; RUN: chunk-epilogue {"store_columns": 64}
; COMPLETE:
; CHECK: %z_64 = narrow %y_64 : f16[i: 64, j: 64] #acc_64

; CASE: a tile of one chunk
; INPUT: product.ma
; RUN: chunk-epilogue {"store_columns": 64}
; UNCHANGED

; CASE: without a schedule tiles stay whole
; INPUT: biased.ma
; RUN: chunk-epilogue
; UNCHANGED

; CASE: tiles of 64 columns after two MMAs
; INPUT: rescaled.ma
; RUN: chunk-epilogue {"store_columns": 64}
; UNCHANGED

; CASE: a kernel that reads what it stores
; INPUT: biased.ma
; EDIT: input R => output R
; EDIT: st.global C[ => st.global R[
; RUN: chunk-epilogue {"store_columns": 64}
; UNCHANGED
