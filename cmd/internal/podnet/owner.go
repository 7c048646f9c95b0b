// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"

	"github.com/culvert-cni/culvert/maps"
)

const (
	hostPrefix = "cv"
	hashDigits = 12
)

// HostName is the name of the node's side of an attachment's veth. It is made from the
// owner alone, so that DEL finds the device when nothing else is left.
func HostName(o maps.Owner) string {
	sum := digest(o, "name")
	return hostPrefix + hex.EncodeToString(sum[:hashDigits/2])
}

// IsHostName says whether a device is, by its name, the node's side of an attachment.
func IsHostName(name string) bool {
	digits, ok := strings.CutPrefix(name, hostPrefix)
	_, err := hex.DecodeString(digits)
	return ok && len(digits) == hashDigits && err == nil
}

// hardwareAddr derives a locally administered unicast address; side tells the two ends
// of a pair apart.
func hardwareAddr(o maps.Owner, side string) net.HardwareAddr {
	sum := digest(o, side)
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}

func digest(o maps.Owner, use string) [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.Join([]string{use, o.Network, o.Container, o.IfName}, "\x00")))
}
