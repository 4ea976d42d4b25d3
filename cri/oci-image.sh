# SPDX-License-Identifier: Apache-2.0
#
# To be sourced: makes image archives from directories with nothing but tar, gzip and sha256sum, and
# the same bytes every time. Several images of one archive share their layers.
#
#   images_begin DIR             an empty working directory; the functions below fill it
#   layer ROOT                   adds a layer of the files below ROOT, owned by root; sets LAYER
#   image 'CONFIG' 'NAMES' LAYER...   an image with the members CONFIG of its "config" object, as JSON
#   images_write_oci OUT.tar     all of them as an OCI image layout, with gzipped layers
#   images_write_docker OUT.tar  all of them as `docker save` does, with plain layers
#
# Names are whole references; the OCI layout carries them as annotations of index.json.

# modes in a layer must not depend on who builds it
umask 022

case $(uname -m) in
x86_64) OCI_ARCH=amd64 ;;
aarch64) OCI_ARCH=arm64 ;;
*) OCI_ARCH=$(uname -m) ;;
esac

images_begin() {
	IMAGES=$1
	rm -rf "$IMAGES"
	mkdir -p "$IMAGES/oci/blobs/sha256" "$IMAGES/docker"
	: >"$IMAGES/index"
	: >"$IMAGES/manifest"
}

tar_same() {
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -C "$1" -cf - $(ls -A "$1")
}

hash_of() {
	sha256sum "$1" | cut -d ' ' -f 1
}

# blob FILE: moves it among the blobs; sets BLOB to its hash and SIZE to its bytes
blob() {
	BLOB=$(hash_of "$1")
	SIZE=$(stat -c %s "$1")
	mv "$1" "$IMAGES/oci/blobs/sha256/$BLOB"
}

layer() {
	tar_same "$1" >"$IMAGES/layer.tar"
	LAYER=$(hash_of "$IMAGES/layer.tar")
	gzip -n -6 <"$IMAGES/layer.tar" >"$IMAGES/layer.gz"
	blob "$IMAGES/layer.gz"
	echo "{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"sha256:$BLOB\",\"size\":$SIZE}" >"$IMAGES/$LAYER.desc"
	mkdir -p "$IMAGES/docker/$LAYER"
	mv "$IMAGES/layer.tar" "$IMAGES/docker/$LAYER/layer.tar"
}

# joined WORD...: the words with commas between them
joined() {
	(IFS=, && echo "$*")
}

image() {
	config=$1 names=$2
	shift 2
	diff_ids= descs= files=
	for l; do
		diff_ids="$diff_ids \"sha256:$l\""
		descs="$descs $(cat "$IMAGES/$l.desc")"
		files="$files \"$l/layer.tar\""
	done
	printf '{"architecture":"%s","os":"linux","config":{%s},"rootfs":{"type":"layers","diff_ids":[%s]}}' \
		"$OCI_ARCH" "$config" "$(joined $diff_ids)" >"$IMAGES/config"
	cp "$IMAGES/config" "$IMAGES/docker/$(hash_of "$IMAGES/config").json"
	blob "$IMAGES/config"
	tags=
	for n in $names; do
		tags="$tags \"$n\""
	done
	printf '{"Config":"%s.json","RepoTags":[%s],"Layers":[%s]}\n' "$BLOB" "$(joined $tags)" "$(joined $files)" >>"$IMAGES/manifest"

	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[%s]}' \
		"$BLOB" "$SIZE" "$(joined $descs)" >"$IMAGES/m"
	blob "$IMAGES/m"
	for n in $names; do
		printf '{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"},"platform":{"architecture":"%s","os":"linux"}}\n' \
			"$BLOB" "$SIZE" "$n" "$n" "$OCI_ARCH" >>"$IMAGES/index"
	done
}

images_write_oci() {
	printf '{"imageLayoutVersion":"1.0.0"}' >"$IMAGES/oci/oci-layout"
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}' \
		"$(paste -sd , "$IMAGES/index")" >"$IMAGES/oci/index.json"
	tar_same "$IMAGES/oci" >"$1.tmp"
	mv "$1.tmp" "$1"
}

images_write_docker() {
	printf '[%s]' "$(paste -sd , "$IMAGES/manifest")" >"$IMAGES/docker/manifest.json"
	tar_same "$IMAGES/docker" >"$1.tmp"
	mv "$1.tmp" "$1"
}
