// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"strconv"
	"strings"
)

// The settings that say which ports the host's own sockets get. Both families go by them.
var (
	localPorts    = Sysctl{Path: "net/ipv4/ip_local_port_range"}
	reservedPorts = Sysctl{Path: "net/ipv4/ip_local_reserved_ports"}
)

// Ports are the ports from First to Last, both in it.
type Ports struct{ First, Last int }

// HostPorts lists the ports that are not ours to choose from: those that the kernel gives
// to sockets which ask for any, and those that an administrator reserved.
func (h *Handle) HostPorts() ([]Ports, error) {
	local, err := localPorts.Get()
	if err != nil {
		return nil, err
	}
	reserved, err := reservedPorts.Get()
	if err != nil {
		return nil, err
	}
	return hostPorts(local, reserved)
}

// hostPorts reads what the two settings hold.
func hostPorts(local, reserved string) ([]Ports, error) {
	fields := strings.Fields(local)
	if len(fields) != 2 {
		return nil, fmt.Errorf("read sysctl %s: %q is no range", localPorts.Path, local)
	}
	return parsePorts(fields[0] + "-" + fields[1] + "," + reserved)
}

// parsePorts reads a list as ip_local_reserved_ports has it: "8080,9000-9010".
func parsePorts(list string) ([]Ports, error) {
	var ranges []Ports
	for _, part := range strings.Split(list, ",") {
		if part == "" {
			continue
		}
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("read list of ports: %q is none", part)
		}
		ranges = append(ranges, Ports{int(from), int(to)})
	}
	return ranges, nil
}
