# toml_each.awk - FAMILIES.toml or RULES.toml as text with every `each` written out (src/core/toml_each.h), for scripts that read it line by line.
#   awk -f tools/toml_each.awk kernels/avx2/common/FAMILIES.toml
function flush(  rest, n, i, k, line, name, list, parts, names, count, value) {
    count = 1
    names = 0
    rest = each
    while (match(rest, /[A-Za-z_]+ *= *\[[^]]*\]/)) {
        name = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        list = name
        sub(/ *=.*/, "", name)
        sub(/^[^[]*\[/, "", list)
        gsub(/[]" ]/, "", list)
        count = split(list, parts, ",")
        key[++names] = name
        for (i = 1; i <= count; i++)
            value[names, i] = parts[i]
    }
    for (n = 1; n <= count; n++)
        for (i = 1; i <= lines; i++) {
            line = held[i]
            for (k = 1; k <= names; k++)
                gsub("\\{" key[k] "\\}", value[k, n], line)
            print line
        }
    lines = 0
    each = ""
}
/^\[\[(family|rule)\]\]/ { flush() }
/^each *=/ { each = $0; next }
{ held[++lines] = $0 }
END { flush() }
