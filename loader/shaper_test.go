// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"testing"

	"github.com/culvert-cni/culvert/maps"
)

// What limits are held with is asked once a load, and a kernel that cannot hold them is
// warned of.
func TestPrivilegedShaperFeatures(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lacks []string
		want  maps.Features
	}{
		{"everything", nil, maps.FeatureTBF | maps.FeatureFqCodel},
		{"no fq_codel", []string{"fq_codel"}, maps.FeatureTBF},
		{"no tbf", []string{"fq_codel", "tbf"}, 0},
		{"no way to ask", []string{"netlink"}, maps.FeatureTBF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := options(t)
			fake := opts.Netlink.(*FakeNetlink)
			fake.Lacks = map[string]bool{}
			for _, kind := range tt.lacks {
				fake.Lacks[kind] = true
			}
			if fake.Lacks["netlink"] {
				opts.Netlink = noNetlink{}
			}
			s := Inspect(opts)
			if len(s.Warnings) > 0 {
				t.Errorf("before a load: %+v", s.Warnings)
			}
			ensure(t, opts)
			s = Inspect(opts)
			if got := s.Features & (maps.FeatureTBF | maps.FeatureFqCodel); got != tt.want {
				t.Errorf("features %s, want %s", s.Features, tt.want)
			}
			warned := len(s.Warnings) == 1 && errors.Is(s.Warnings[0], ErrKernel) && s.Warnings[0] == NoShaper()
			if want := tt.want == 0 && !exists("/sys/module/sch_tbf"); warned != want {
				t.Errorf("warnings %+v, want one: %v", s.Warnings, want)
			}
			// Another look finds what was decided, whatever the kernel would say now.
			fake.Lacks = nil
			ensure(t, opts)
			if again := Inspect(opts); again.Features != s.Features {
				t.Errorf("features %s, then %s", s.Features, again.Features)
			}
		})
	}
}
