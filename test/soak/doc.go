// SPDX-License-Identifier: Apache-2.0

// Package soak runs everything at once for as long as it is told: ADD, DEL, CHECK, GC and
// STATUS of many pods, traffic of theirs, limits that change, and kill -9 of all those
// verbs at random moments. Again and again it brings the node back to the same pods and
// counts what there is: rows, pins, devices, qdiscs, routes, leases, programs, memory.
//
//	make soak                     half an hour, 64 pods
//	SOAK_TIME=5m SOAK_SEED=7 make soak
package soak
