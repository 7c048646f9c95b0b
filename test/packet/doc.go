// SPDX-License-Identifier: Apache-2.0

// Package packet builds packets, runs the programs of the shipped object on them by
// BPF_PROG_TEST_RUN, inside a throwaway node, and tells what came out: the verdict,
// the bytes, where a redirect leads, and the rows of the maps.
//
// A test says what it expects as a Packet too: the frame is compared whole, so each
// checksum that the datapath patched is compared with one computed from nothing.
package packet
