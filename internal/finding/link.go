package finding

import "strings"

// Link returns the address of the section of docs/troubleshooting.md about a reason, a code or a check.
func Link(name string) string {
	const page = "https://github.com/capi-proxy-patcher/capi-proxy-patcher/blob/main/docs/troubleshooting.md"
	return page + "#" + strings.ToLower(name)
}
