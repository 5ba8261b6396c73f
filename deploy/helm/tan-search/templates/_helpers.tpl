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

{{- define "tan.environment" -}}
- { name: TAN_SECRETS_DIR, value: /etc/tan/secrets }
- { name: TAN_HOME, value: /var/lib/tan }
- { name: TAN_STORAGE, value: /runs }
- { name: TAN_DATA_DIR, value: /data }
- { name: TAN_ALLOWED_DATA_DIRS, value: /data }
- { name: TAN_WORKER_URL, value: "http://{{ include "tan.name" . }}-api.{{ .Release.Namespace }}.svc:8321" }
- { name: TAN_LOG_FORMAT, value: json }
{{- range $name, $value := .Values.settings }}
- { name: {{ $name }}, value: {{ $value | quote }} }
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
