{{range .}}{{.Name}} {{.LicenseName}}
{{end}}