; A kernel is launched before the one in front of it ends if all blocks of both have a multiprocessor of their own.

; CASE: the kernel in the middle waits before it launches the last one
; INPUT: three_kernels.ma
; RUN: dependent-launch
; COMPLETE:
; CHECK: kernel first
; CHECK-NOT: grid.wait
; CHECK: grid.launch_dependents
; CHECK-NEXT: %x = ld.global
; CHECK: kernel middle
; CHECK: grid.wait
; CHECK-NEXT: grid.launch_dependents
; CHECK-NEXT: %x = ld.global
; CHECK: kernel last
; CHECK: grid.wait
; CHECK-NEXT: %x = ld.global
; CHECK-NOT: grid.launch_dependents

; CASE: blocks that share multiprocessors
; INPUT: three_kernels.ma
; EDIT: let i0 = block * 32 => let i0 = block % 32 * 32
; EDIT: kernel middle grid 32 => kernel middle grid 128
; RUN: dependent-launch
; UNCHANGED

; CASE: one pair of kernels fits
; INPUT: three_kernels.ma
; EDIT: let i0 = block * 32 => let i0 = block % 32 * 32
; EDIT: kernel last grid 32 => kernel last grid 128
; RUN: dependent-launch
; COMPLETE:
; CHECK: kernel first
; CHECK: grid.launch_dependents
; CHECK: kernel middle
; CHECK: grid.wait
; CHECK-NOT: grid.

; CASE: the switch of the later kernel
; INPUT: three_kernels.ma
; PLAN: middle {"mapping": {"engine": "warp", "dependent_launch": false}}
; RUN: dependent-launch
; COMPLETE:
; CHECK-NOT: grid.wait
; CHECK: kernel middle
; CHECK-NEXT: let i0
; CHECK: grid.launch_dependents
; CHECK-NEXT: %x
; CHECK: kernel last
; CHECK: grid.wait

; CASE: a target without the instructions
; INPUT: three_kernels.ma
; EDIT: target sm_90a => target sm_80
; ARCH: sm_80
; RUN: dependent-launch
; UNCHANGED

; CASE: a single block after and before many
; INPUT: three_kernels.ma
; EDIT: let i0 = block * 32 => let i0 = block * 0
; EDIT: kernel first grid 32 => kernel first grid 128
; EDIT: kernel middle grid 32 => kernel middle grid 1
; EDIT: kernel last grid 32 => kernel last grid 128
; RUN: dependent-launch
; COMPLETE:
; CHECK: kernel first
; CHECK: grid.launch_dependents
; CHECK: kernel middle
; CHECK: grid.wait
; CHECK-NEXT: grid.launch_dependents
; CHECK: kernel last
; CHECK: grid.wait
