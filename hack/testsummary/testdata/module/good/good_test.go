package good

import "testing"

func TestTwo(t *testing.T) {
	for _, name := range []string{"one", "10.0.0.0/8"} {
		t.Run(name, func(t *testing.T) {
			t.Log("chatter")
		})
	}
}

func TestSkipped(t *testing.T) {
	t.Skip("needs a reason")
}
