#!/bin/sh
# Two home domains on one machine: carol of a.example publishes and subscribes at the broker of b.example.
# What it writes goes below the directory in its first argument, out/two-domains unless given.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-out/two-domains}
mkdir -p "$dir"
chmod 700 "$dir"
. .venv/bin/activate

# An authority that both domains believe, and a certificate that names each. Yours come from a public authority.
ec="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $ec -days 30 -subj "/CN=authority" -keyout "$dir/authority.key" -out "$dir/authority.pem" 2>/dev/null
certify() { # name, address
    openssl req $ec -subj "/CN=$1" -keyout "$dir/$1.key" -out "$dir/$1.csr" 2>/dev/null
    printf 'subjectAltName=DNS:%s,IP:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$1" "$2" >"$dir/$1.ext"
    openssl x509 -req -in "$dir/$1.csr" -CA "$dir/authority.pem" -CAkey "$dir/authority.key" -CAcreateserial \
        -days 30 -extfile "$dir/$1.ext" -out "$dir/$1.pem" 2>/dev/null
}
certify a.example 127.0.1.1
certify b.example 127.0.1.2

# The home of carol: registrar and proxy alone.
cat >"$dir/a.toml" <<END
domain = "a.example"
host = "127.0.1.1"
data_dir = "a"
tls_certificate = "a.example.pem"
tls_key = "a.example.key"

[users]
carol = "secret"

[domains]
lookup = false
ca_file = "authority.pem"
trusted = ["b.example"]
[domains.routes]
"b.example" = ["127.0.1.2"]
END

# The home of the broker, which admits users of a.example.
cat >"$dir/b.toml" <<END
domain = "b.example"
host = "127.0.1.2"
data_dir = "b"
tls_certificate = "b.example.pem"
tls_key = "b.example.key"
user_domains = ["a.example"]

[users]
bob = "hunter2"

[domains]
lookup = false
ca_file = "authority.pem"
trusted = ["a.example"]
[domains.routes]
"a.example" = ["127.0.1.1"]
END
chmod 600 "$dir/a.toml" "$dir/b.toml"

wanderbus proxy --config "$dir/a.toml" >"$dir/a.out" &
home=$!
wanderbus up --config "$dir/b.toml" >"$dir/b.out" &
broker=$!
trap 'kill $home $broker; wait' EXIT
until grep -q ready "$dir/a.out" && grep -q ready "$dir/b.out"; do sleep 0.2; done

export WANDERBUS_PASSWORD=secret
carol="--user sip:carol@a.example --server 127.0.1.1 --broker sip:broker@b.example --ca-file $dir/authority.pem"
wanderbus sub Departure --count 1 $carol --state-dir "$dir/subscriber" >"$dir/received" &
subscriber=$!
until [ -s "$dir/received" ]; do # the first ones may come before the subscription
    wanderbus pub Departure Dest=IAH DepDelay=42.0 $carol --state-dir "$dir/publisher"
done
wait $subscriber
cat "$dir/received"
