# SPDX-License-Identifier: Apache-2.0
#
# From the counters of labpod count, each with the node that asked, to columns of the table of faults. $dead: the node
# that was away, if there was one. Three lines: the columns of the pairs without it; lost and broken, to be judged;
# the columns of the pairs with it.
def columns:
  if length == 0 then "|||||" else
  "\(map(.sent) | add)|\(map(.lost) | add)|\(map(select(.kind == "kept")) | length)|\(map(.broken) | add)|\(map(.worst_ms) | max) ms|\(map(.stall_ms) | max) ms" end;
def with_dead: .client == $dead or (.target | split(" ")[0]) == $dead;
flatten
| ([.[] | select($dead == "" or (with_dead | not))]) as $rest
| ([.[] | select($dead != "" and with_dead)]) as $gone
| ($rest | columns), ($rest | "\(map(.lost) | add) \(map(.broken) | add)"), ($gone | columns)
