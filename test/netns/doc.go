// SPDX-License-Identifier: Apache-2.0

// Package netns builds throwaway nodes for the tests: network namespaces, the
// wires between them, pods added through the CNI protocol, and servers and
// clients that run inside. Everything a test makes here hangs on a file
// descriptor of the test process, so it is gone when that process is.
package netns
