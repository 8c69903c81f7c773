; A kernel that adds to what the one before it has stored, twice.
module t target sm_90a {
  input X: f32[1024]
  temp A: f32[1024]
  temp B: f32[1024]
  output Y: f32[1024]
  kernel first grid 32 warps 1 min_blocks 1 {
    let i0 = block * 32
    layout #i = reg() lane(i:32x1) warp()
    %x = ld.global X[i0 + i] vec 1 : f32[i: 32] #i
    st.global A[i0 + i], %x vec 1
  }
  kernel middle grid 32 warps 1 min_blocks 1 {
    let i0 = block * 32
    layout #i = reg() lane(i:32x1) warp()
    %x = ld.global A[i0 + i] vec 1 : f32[i: 32] #i
    %y = add %x, %x : f32[i: 32] #i
    st.global B[i0 + i], %y vec 1
  }
  kernel last grid 32 warps 1 min_blocks 1 {
    let i0 = block * 32
    layout #i = reg() lane(i:32x1) warp()
    %x = ld.global B[i0 + i] vec 1 : f32[i: 32] #i
    %y = add %x, %x : f32[i: 32] #i
    st.global Y[i0 + i], %y vec 1
  }
}
