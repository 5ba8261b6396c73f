{{- define "tan.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "tan.labels" -}}
app.kubernetes.io/name: tan-search
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tan.selector" -}}
app.kubernetes.io/name: tan-search
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Without app.kubernetes.io/name: that label of Ray's pods is KubeRay's, whose services look for it. */ -}}
{{- define "tan.ray.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: ray
{{- end }}

{{- define "tan.claim" -}}
{{- .volume.existingClaim | default (printf "%s-%s" (include "tan.name" .root) .name) -}}
{{- end }}

{{- /* Nothing of ours needs Kubernetes' API, a writable root or a capability. */ -}}
{{- define "tan.pod" -}}
automountServiceAccountToken: false
# Otherwise a service of the namespace that is called `tan` sets TAN_PORT, to tcp://...
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tan.container" -}}
image: {{ .Values.image.service }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- /* Every variable once: what all have, then the component's own, then the settings, which may say otherwise, and
last what is bound to a volume or a probe of the component (`fixed`). */ -}}
{{- define "tan.environment" -}}
{{- $worker_url := printf "http://%s-api.%s.svc:8321" (include "tan.name" .root) .root.Release.Namespace -}}
{{- $all := dict
  "TAN_SECRETS_DIR" "/etc/tan/secrets"
  "TAN_HOME" "/var/lib/tan"
  "TAN_STORAGE" "/runs"
  "TAN_DATA_DIR" "/data"
  "TAN_ALLOWED_DATA_DIRS" "/data"
  "TAN_WORKER_URL" $worker_url
  "TAN_LOG_FORMAT" "json" -}}
{{- range $name, $value := mergeOverwrite $all (.own | default dict) .root.Values.settings (.fixed | default dict) }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end }}

{{- /* Part of a quantity such as 16Gi, in whole bytes: (dict "of" "16Gi" "part" 0.9). */ -}}
{{- define "tan.bytes" -}}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12
  "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $number := regexFind "^[0-9.]+" .of | float64 -}}
{{- printf "%.0f" (mulf $number (get $units (regexFind "[a-zA-Z]*$" .of)) .part | floor) -}}
{{- end }}

{{- /* On which nodes a pod may run. */ -}}
{{- define "tan.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Secrets are read once, when a process starts: another word here restarts who reads them. */ -}}
{{- define "tan.revisions" -}}
{{- range $name, $revision := . }}
{{- with $revision }}
tan-search/{{ $name }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Each pod sees the secrets that it needs, as files. */ -}}
{{- define "tan.secrets" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .root.Values.secrets.service }}
          items:
            {{- range .keys }}
            - { key: {{ . }}, path: {{ . }} }
            {{- end }}
      {{- if .ray }}
      - secret:
          name: {{ .root.Values.secrets.ray }}
          items: [{ key: auth_token, path: ray_token }]
      {{- end }}
{{- end }}
