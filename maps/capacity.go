// SPDX-License-Identifier: Apache-2.0

package maps

import "fmt"

// Capacity says how many rows each table has room for, by its name.
func (s *Set) Capacity() (map[string]int, error) {
	room := map[string]int{}
	for _, m := range s.opened {
		info, err := m.Info()
		if err != nil {
			return nil, fmt.Errorf("read size of a table: %w", err)
		}
		room[info.Name] = int(m.MaxEntries())
	}
	return room, nil
}
