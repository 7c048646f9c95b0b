// SPDX-License-Identifier: Apache-2.0

// Package crash kills the built plugin at every point where it has changed something, and
// looks at what the next verbs make of the remains.
//
// The product knows nothing of it: a tracer (trace.go) stops the plugin at each system
// call and kills the whole process when the n-th one with an effect has returned. The
// tracer is this package's test binary under the name culvert, so that whatever runs
// plugins can run it.
package crash
