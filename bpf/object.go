// SPDX-License-Identifier: Apache-2.0

package bpf

import "hash/crc64"

// Build identifies the object that this binary carries: a hash over its bytes, the
// same for the same sources and compiler. An ADD compares it with the row of config,
// so it must be cheap; it need not withstand an adversary.
func Build() uint64 {
	return crc64.Checksum(_DatapathBytes, crc64.MakeTable(crc64.ECMA))
}
