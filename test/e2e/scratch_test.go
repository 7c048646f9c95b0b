package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

func TestScratch(t *testing.T) {
	for k := range 3 {
	t.Run(fmt.Sprint(k), func(t *testing.T) {
	t.Parallel()
	for i := range 30 {
	t.Run(fmt.Sprint(i), func(t *testing.T) {
	c := wire(t, netns.Layout{})
	node := c.Nodes[0]
	node.Serve(t, 8080)
	p, _ := serve(t, node, netns.PodSpec{Name: "neighbour"})
	state := "x"
	if os.Getenv("WAIT") != "" {
		for n := 0; !strings.Contains(state, "state UP"); n++ {
			state = node.MustRun(t, "", "ip", "-o", "link", "show", "dev", p.Host.Name)
			if n > 0 { t.Errorf("waited %d", n) }
		}
	}
	for _, v := range []int{4, 6, 4, 6} {
		f := keep(t, p.NS, node.Uplinks[0].Addr(v))
		if _, err := f.Ask(); err != nil {
			t.Errorf("%d: %v\n%s", v, err, state)
		}
	}
	})
	}
	})
	}
}
