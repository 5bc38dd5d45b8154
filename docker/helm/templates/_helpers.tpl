{{/* The name of all objects. */}}
{{- define "dragoman.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "dragoman" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-dragoman" (.Release.Name | trunc 41 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* Prometheus' rules expect the first one's value as `job`. */}}
{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "dragoman.image" -}}
{{- $kind := ternary "gpu" "cpu" .Values.gpu.enabled -}}
{{- $tag := .Values.image.tag | default (printf "%s-%s" .Chart.AppVersion $kind) -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{/* A setting as the environment has it. Helm reads numbers as floats and would write 1e+06. */}}
{{- define "dragoman.setting" -}}
{{- if kindIs "slice" .value -}}
{{- join (ternary ":" "," (eq .name "model")) .value -}}
{{- else if and (kindIs "float64" .value) (eq .value (floor .value)) -}}
{{- int64 .value -}}
{{- else -}}
{{- .value -}}
{{- end -}}
{{- end -}}

{{/* Everything that the ConfigMap of settings has. */}}
{{- define "dragoman.settings" -}}
{{- range $name, $value := .Values.settings }}
DRAGOMAN_{{ upper $name }}: {{ include "dragoman.setting" (dict "name" $name "value" $value) | quote }}
{{- end }}
{{- with .Values.models }}
{{- if eq .source "pull" }}
DRAGOMAN_MODELS_DIR: /models
{{- else if .names }}
DRAGOMAN_MODEL: /models/{{ join ":/models/" .names }}
{{- end }}
{{- end }}
{{- if .Values.gpu.enabled }}
DRAGOMAN_DEVICE: cuda
{{- end }}
{{- if .Values.http.enabled }}
DRAGOMAN_HTTP_PORT: {{ int .Values.http.port | quote }}
{{- end }}
{{- if .Values.tls.secret }}
DRAGOMAN_TLS_CERT: /tls/tls.crt
DRAGOMAN_TLS_KEY: /tls/tls.key
{{- if .Values.tls.clientCa }}
DRAGOMAN_TLS_CLIENT_CA: /tls/ca.crt
{{- end }}
{{- end }}
{{- if .Values.keys.secret }}
DRAGOMAN_KEYS: /keys/keys.jsonl
DRAGOMAN_USAGE: /usage/usage.db
{{- end }}
{{- if include "dragoman.glossaries" . }}
DRAGOMAN_GLOSSARY_DIR: /glossaries
{{- end }}
{{- end -}}

{{/* The ConfigMap of glossaries; empty without any. */}}
{{- define "dragoman.glossaries" -}}
{{- if .Values.glossaries.configMap -}}
{{- .Values.glossaries.configMap -}}
{{- else if .Values.glossaries.files -}}
{{- include "dragoman.name" . }}-glossaries
{{- end -}}
{{- end -}}

{{- define "dragoman.containerSecurityContext" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{/* The kubelet's gRPC probes can't speak TLS. */}}
{{- define "dragoman.readiness" -}}
{{- if .Values.tls.secret -}}
httpGet:
  path: /readyz
  port: metrics
  scheme: HTTPS
{{- else -}}
grpc:
  port: 50051
  service: dragoman.v1.TranslationService
{{- end -}}
{{- end -}}

{{/* Peers of a NetworkPolicy. */}}
{{- define "dragoman.clients" -}}
- podSelector:
    matchLabels:
      {{- toYaml .Values.networkPolicy.clientLabels | nindent 6 }}
- namespaceSelector:
    matchLabels:
      {{- toYaml .Values.networkPolicy.clientLabels | nindent 6 }}
{{- end -}}

{{/* The ports of the URLs that the pods fetch over HTTPS, as JSON. */}}
{{- define "dragoman.httpsPorts" -}}
{{- $urls := list (get .Values.settings "jwks_url") -}}
{{- if eq .Values.models.source "pull" -}}
{{- $urls = append $urls (.Values.models.pull.url | default "https://hub") -}}
{{- end -}}
{{- $ports := list -}}
{{- range $urls -}}
{{- if hasPrefix "https://" . -}}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" (urlParse .).host) | default "443" | int) -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* Values that contradict each other; the schema checks single values. */}}
{{- define "dragoman.check" -}}
{{- with .Values }}
{{- if and .gpu.enabled (eq .models.source "bundled") (not .image.digest) (not .image.tag) }}
{{- fail "gpu.enabled: the models in the image are for CPUs; set models.source, or image.tag to an image with a bundle in fp16" }}
{{- end }}
{{- if and (ne .models.source "bundled") (not .models.names) }}
{{- fail (printf "models.names: empty, but models.source is %s" .models.source) }}
{{- end }}
{{- if and (eq .models.source "bundled") .models.names }}
{{- fail "models.names: only for the sources image, volume and pull; the image's own models need none" }}
{{- end }}
{{- if and (eq .models.source "image") (not .models.image) }}
{{- fail "models.image: empty, but models.source is image" }}
{{- end }}
{{- if and (eq .models.source "volume") (not .models.volume) }}
{{- fail "models.volume: empty, but models.source is volume" }}
{{- end }}
{{- if and (eq .models.source "pull") (not .models.pull.image) }}
{{- fail "models.pull.image: empty, but models.source is pull; the server's image has no PyTorch" }}
{{- end }}
{{- if and (or .ingress.enabled .gateway.http) (not .http.enabled) }}
{{- fail "ingress.enabled and gateway.http need http.enabled" }}
{{- end }}
{{- if and (or .gateway.grpc .gateway.http) (not .gateway.parentRefs) }}
{{- fail "gateway.parentRefs: empty, but a route is enabled" }}
{{- end }}
{{- if and .tls.clientCa (not .tls.secret) }}
{{- fail "tls.clientCa needs tls.secret" }}
{{- end }}
{{- if and .glossaries.files .glossaries.configMap }}
{{- fail "glossaries: files or configMap, not both" }}
{{- end }}
{{- if gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas) }}
{{- fail "autoscaling.minReplicas is over autoscaling.maxReplicas" }}
{{- end }}
{{- end }}
{{- end -}}
