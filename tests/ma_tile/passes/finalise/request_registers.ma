; The budgets of roles as changes of what the launch allocates.

; CASE: two of three warpgroups take what the third one gives up
; RUN: request-registers
; AGAIN
; COMPLETE:
module t target sm_90a {
  input X: f32[512]
  output Y: f32[256]
  kernel k grid 1 warps 12 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    roles {
      role loads warps 0..4 registers 24 single {
      }
      role consumers warps 4..12 registers 240 consumers 2 {
        %x = ld.global X[consumer * 128 + i] vec 1 : f32[i: 128] #i
        st.global Y[consumer * 128 + i], %x vec 1
      }
    }
  }
}
; CHECK: role loads warps 0..4 registers 24 decrease single {
; CHECK: role consumers warps 4..12 registers 240 increase consumers 2 {

; CASE: two blocks on a multiprocessor leave half of the registers to each
; 168 registers are fewer than one block of 256 threads gets alone, and more than each of two gets.
; RUN: request-registers
; COMPLETE:
module t target sm_90a {
  output Y: f32[128]
  kernel k grid 2 warps 8 min_blocks 2 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    roles {
      role loads warps 0..4 registers 40 single {
      }
      role consumers warps 4..8 registers 168 {
        %x = const 1.0 : f32[i: 128] #i
        st.global Y[i], %x where block < 1 vec 1
      }
    }
  }
}
; CHECK: role loads warps 0..4 registers 40 decrease single {
; CHECK: role consumers warps 4..8 registers 168 increase {

; CASE: roles without budgets
; RUN: request-registers
; UNCHANGED
module t target sm_90a {
  output Y: f32[128]
  kernel k grid 1 warps 8 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    roles {
      role loads warps 0..4 single {
      }
      role consumers warps 4..8 {
        %x = const 1.0 : f32[i: 128] #i
        st.global Y[i], %x vec 1
      }
    }
  }
}
