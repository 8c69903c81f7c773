; Blocks of one warp share a block of the launch, of which each has a warp.

; CASE: a row for each warp, in blocks of eight; the last block of the launch has two of them
; RUN: pack-blocks {"least": 0}
; AGAIN
module rows target sm_90a {
  input X: f32[10, 32]
  input end: i32[10]
  output Y: f32[10, 32]
  kernel Y grid 10 warps 1 min_blocks 1 {
    let n = block
    let last = min(max(end[n], 0), 10)
    layout #d = reg() lane(d:32x1) warp()
    %zero = const 0.0 : f32[d: 32] #d
    %y = for j in 0..last chain c0 carry(%a = %zero) {
      %x = ld.global X[j, d] vec 1 : f32[d: 32] #d
      %b = add %a, %x : f32[d: 32] #d
      yield %b
    }
    st.global Y[n, d], %y vec 1
  }
}
; CHECK: kernel Y grid 10 warps 1 min_blocks 1 packed 8 {

; CASE: few blocks, which start in no time
; RUN: pack-blocks
; UNCHANGED
module few target sm_90a {
  input X: f32[10, 32]
  input at: i32[10]
  output Y: f32[10, 32]
  kernel Y grid 10 warps 1 min_blocks 1 {
    let n = block
    let row = min(max(at[n], 0), 9)
    layout #d = reg() lane(d:32x1) warp()
    %x = ld.global X[row, d] vec 1 : f32[d: 32] #d
    st.global Y[n, d], %x vec 1
  }
}

; CASE: blocks of a million, of which a block of the launch has eight
; RUN: pack-blocks
; PRINT: cuda
module many target sm_90a {
  input X: f32[1000003, 32]
  input at: i32[1000003]
  output Y: f32[1000003, 32]
  kernel Y grid 1000003 warps 1 min_blocks 1 {
    let n = block
    let row = min(max(at[n], 0), 1000002)
    layout #d = reg() lane(d:32x1) warp()
    %x = ld.global X[row, d] vec 1 : f32[d: 32] #d
    st.global Y[n, d], %x vec 1
  }
}
; CHECK: __launch_bounds__(256, 1)
; CHECK: const int block = blockIdx.x * 8 + threadIdx.x / 32;
; CHECK-NEXT: if (block >= 1000003) return;
; CHECK: <<<125001, 256, 0, stream>>>

; CASE: dense rows
; RUN: pack-blocks
; UNCHANGED
module dense target sm_90a {
  input X: f32[1000003, 32]
  output Y: f32[1000003, 32]
  kernel Y grid 1000003 warps 1 min_blocks 1 {
    let n = block
    layout #d = reg() lane(d:32x1) warp()
    %x = ld.global X[n, d] vec 1 : f32[d: 32] #d
    st.global Y[n, d], %x vec 1
  }
}
; CASE: warps that share memory
; RUN: pack-blocks {"least": 0}
; UNCHANGED
module shared target sm_90a {
  input X: f32[10, 32]
  input at: i32[10]
  output Y: f32[10, 32]
  kernel Y grid 10 warps 1 min_blocks 1 {
    let n = block
    let row = min(max(at[n], 0), 9)
    layout #d = reg() lane(d:32x1) warp()
    smem s : f32[d: 32] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[row, d] vec 1 : f32[d: 32] #d
    st.shared s[0], %x vec 1
    barrier
    %y = ld.shared s[0] vec 1 : f32[d: 32] #d
    st.global Y[n, d], %y vec 1
  }
}
