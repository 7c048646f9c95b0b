// SPDX-License-Identifier: Apache-2.0

// Package bpf holds everything the kernel runs: datapath.c with its headers, and
// the object and Go types that bpf2go makes of them.
package bpf
