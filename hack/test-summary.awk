# Sums the results that gotestsum --jsonfile-timing-events has written. A package that fails without a failing test, because
# it does not build or ends early, counts as one failure.
{
  match($0, /"Action":"[a-z]*"/); action = substr($0, RSTART + 10, RLENGTH - 11)
  match($0, /"Package":"[^"]*"/); package = FILENAME substr($0, RSTART, RLENGTH)
  if (/"Test":/) { tests[action]++; if (action == "fail") named[package] }
  else if (action == "fail") failed[package]
}
END {
  for (package in failed) if (!(package in named)) tests["fail"]++
  printf "%d passed, %d failed, %d skipped\n", tests["pass"], tests["fail"], tests["skip"]
}
