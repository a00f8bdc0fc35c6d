r"""The POSIX sh text that runs on other machines; ``scripts`` puts it together and fills in the variables.

What it leans on: ``/proc``, cat, grep, tr, tail, sleep, mkdir, env, nohup; ``setsid`` and ``flock`` where
they exist. Each body is a function ``main``, so that the shell has read all of it before it runs any.
"""

from __future__ import annotations

#: How to tell facts, and who is who. A process is written PID:START, as in ``proc.Process``.
PRELUDE = r"""
unset IFS
say() { printf '@%s %s\n' "$tag" "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
nap() { sleep 0.2 2>/dev/null || sleep 1; }
read -r boot </proc/sys/kernel/random/boot_id

# Seconds since boot: a clock that nobody sets.
uptime() { read -r up _ </proc/uptime; printf '%s' "${up%%.*}"; }

# What /proc/PID/stat says, counted from behind the name in parentheses, which may hold anything.
look() {
    line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    set -- "$1" ${line##*) }
    [ $# -gt 21 ] || return 1
    seen=$1:${21}.$boot
    case $2 in [ZX]) [ "${19}" -gt 1 ] ;; esac
}

alive() { look "${1%%:*}" && [ "$seen" = "$1" ]; }

# All processes with exactly this entry in their environment.
carrying() {
    for file in $(grep -lF -e "$1" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${file#/proc/} pid=${pid%/environ}
        tr '\000' '\n' 2>/dev/null <"$file" | grep -qxF -e "$1" || continue
        look "$pid" && printf '%s\n' "$seen"
    done
}

# 0: somebody holds the lock, 1: nobody does, 2: cannot be seen.
held() {
    if have flock; then
        [ -e "$lock" ] || return 1
        flock -n -s "$lock" true 2>/dev/null
        case $? in 0) return 1 ;; 1) return 0 ;; *) return 2 ;; esac
    fi
    [ -n "$(carrying "$slot_entry")" ]
}
"""

LAUNCH = r"""
runnable() {
    [ -z "$workdir" ] || cd "$workdir" || return 1
    [ -z "$search" ] || PATH=$search
    case $program in
        */*) [ -f "$program" ] && [ -x "$program" ] ;;
        *) have "$program" ;;
    esac
}

main() {
    umask_was=$(umask)
    umask 077
    said=$(mkdir -p "$log_dir" 2>&1) || { say refused "its log cannot be written: $said"; return; }
    log_dir=$(cd "$log_dir" && pwd)
    log=$log_dir/${log##*/} lock=$log_dir/${lock##*/}
    ( : >>"$log" && : >>"$lock" ) 2>/dev/null || { say refused "its log cannot be written: $log"; return; }
    [ -z "$workdir" ] || [ -d "$workdir" ] ||
        { say refused "its workdir $workdir is no directory there"; return; }
    ( runnable ) 2>/dev/null || { say refused "$program is not found or not executable there"; return; }
    if have flock; then
        exec 9>>"$lock"
        flock -n 9 || { say refused "a running process holds its lock $lock"; return; }
    elif held; then
        say refused "a running process carries $slot_entry"; return
    else
        exec 9>/dev/null
    fi
    if grep -qE ": [0-9A-F]+:$port_hex [0-9A-F]+:[0-9A-F]+ 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; then
        say refused "something already listens on its port $port"
        return
    fi
    say log_path "$log"
    printf -- '--- %s %s\n' "$(date '+%Y-%m-%d %H:%M:%S%z')" "$slot $instance" >>"$log"
    umask "$umask_was"
    if have setsid; then own=setsid; else own=; fi
    (
        [ -z "$workdir" ] || cd "$workdir" || exit 126
        exec nohup $own $REPLICA 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&9
    ) </dev/null >>"$log" 2>&1 &
    leader=$!
    if look "$leader"; then started=$seen; else started=; fi
    exec 9>&-
    nap
    if [ -n "$started" ] && alive "$started"; then
        say pid "${started%%:*} ${started#*:}"
        return
    fi
    wait "$leader"
    code=$?
    if [ "$wrapped" = yes ] && [ $code -eq 0 ]; then
        say submitted
    elif [ -n "$(carrying "$entry")" ]; then
        say pid "$leader ${started#*:}"
    else
        say exited $code
        say log
        tail -c 16384 "$log" | tail -n "$lines"
        printf '\n'
    fi
}
"""

#: Whom an instance consists of.
MEMBERS = r"""
# Everything that belongs to the instance, into known; what of it still runs, into left.
collect() {
    for member in $(carrying "$entry") $(led); do
        case " $known " in *" $member "*) ;; *) known="$known $member" ;; esac
    done
}
# The leader's group and session, for as long as the leader itself exists, be it as a zombie.
led() {
    [ -n "$leader" ] || return
    seen=
    look "${leader%%:*}"
    [ "$seen" = "$leader" ] || return
    for file in /proc/[0-9]*/stat; do
        pid=${file#/proc/} pid=${pid%/stat}
        read -r line 2>/dev/null <"$file" || continue
        set -- ${line##*) }
        [ "$3" = "${leader%%:*}" ] || [ "$4" = "${leader%%:*}" ] || continue
        look "$pid" && printf '%s\n' "$seen"
    done
}
remaining() {
    left=
    for member in $known; do alive "$member" && left="$left $member"; done
    [ -n "$left" ]
}
"""

STOP = r"""
anything_left() { remaining || { collect; remaining; }; }
signal() { for member in $left; do alive "$member" && kill "-$1" "${member%%:*}" 2>/dev/null; done; }
passed() { [ $(($(uptime) - since)) -ge "$1" ]; }

main() {
    known=
    collect 2>/dev/null
    if ! remaining && [ "$wrapped" = no ] && ! held; then
        say stopped
        return
    fi
    if [ "$stop_command" = yes ]; then
        said=$( ( [ -z "$workdir" ] || cd "$workdir"; $STOP_COMMAND ) 2>&1 )
        code=$?
        if [ $code -ne 0 ]; then
            say failed "its stop command exited with code $code"
            say log
            printf '%s\n' "$said"
            return
        fi
    else
        signal TERM
    fi
    since=$(uptime)
    while anything_left && ! passed "$grace"; do nap; done
    since=$(uptime)
    while anything_left; do
        signal KILL
        passed 10 && { say failed "processes$left outlive SIGKILL"; return; }
        nap
    done
    while :; do
        held
        case $? in
            1) break ;;
            2) say failed "its lock $lock cannot be looked at"; return ;;
        esac
        passed 3 && { say failed "somebody else holds its lock $lock"; return; }
        nap
    done
    say stopped
}
"""

RUNNING = r"""
main() {
    known=
    collect 2>/dev/null
    if remaining; then say running; else say over; fi
}
"""

HELD = r"""
main() {
    held
    case $? in 0) say held ;; 1) say free ;; *) say unknown ;; esac
}
"""

TAIL = r"""
main() {
    say log
    tail -c 65536 "$log" 2>/dev/null | tail -n "$lines"
    printf '\n'
}
"""

LOOK = r"""
main() {
    for member in $members; do alive "$member" || say gone "$member"; done
}
"""
