// SPDX-License-Identifier: Apache-2.0

package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -type pod_key -type pod -type iface_key -type iface -type hostport_key -type hostport -type limit_key -type limit -type shaper -type tuple -type flow -type fragment_key -type fragment -type hop -type cidr_key -type cidr -type remote -type remote_kind -type address_key -type address -type address_kind -type address_state -type port_range -type uplink -type counter_key -type counter -type node_config -type event -type verdict -type trace_filter -type trace_flag -type addr -type drop_reason -type hook -type flow_action -type flow_flag -type flow_state -type pod_flag -type hostport_flag -type direction -type side -type feature Datapath datapath.c -- -std=gnu2x -O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -nostdinc -I include -I lib
