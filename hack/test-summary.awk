# Sums the results that gotestsum --jsonfile-timing-events has written. The last run of a test counts; one that failed before is
# named. A package that fails without a failing test, because it does not build or ends early, counts as one failure.
function text(key) { return match($0, "\"" key "\":\"[^\"]*\"") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5) : "" }
text("Action") !~ /^(pass|fail|skip)$/ { next }
text("Test") != "" {
  test = FILENAME SUBSEP text("Package") SUBSEP text("Test")
  if (last[test] == "fail" && text("Action") == "pass") again[test]
  last[test] = text("Action")
  if (last[test] == "fail") named[FILENAME, text("Package")]
  next
}
{ packages[FILENAME, text("Package")] = text("Action") }
END {
  for (test in last) sum[last[test]]++
  for (package in packages) if (packages[package] == "fail" && !(package in named)) sum["fail"]++
  for (test in again) { split(test, part, SUBSEP); print "passed only when it was run again, which is a bug: " part[2] " " part[3] }
  printf "%d passed, %d failed, %d skipped\n", sum["pass"], sum["fail"], sum["skip"]
}
