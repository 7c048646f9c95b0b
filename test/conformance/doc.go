// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the built plugin to the CNI protocol: tables of calls as a
// runtime may make them, right and wrong, each with the code and the words of the
// answer. calls_*_test.go run one verb by hand, where the environment and standard input
// can be anything; libcni_test.go and cnitool_test.go go the way of runtimes. Rows are
// grouped by requirement: go test -run P5.
package conformance
